// Which page is shown, and keeping it up to date: one request at a time, each with a deadline, none while hidden.

import { morph, el } from "./dom.js";
import * as views from "./views.js";
import { count } from "./words.js";

const DEADLINE_MS = 5000;
const PAGES = [
  [/^#\/subnet\/(\d+)$/, (id) => `subnet/${id}`, views.subnet],
  [/^#\/account\/(\w+)$/, (id) => `account/${id}`, views.accountPage],
  [/^#\/block\/(\d+)$/, (id) => `block/${id}`, views.block],
  [/^#\/accounts$/, () => "accounts", views.accounts],
  [/^(#\/?)?$/, () => "overview", views.overview],
];
const ui = { sort: { neurons: { column: 9, down: true } }, weights: null };
const view = document.getElementById("view");
const state = document.getElementById("state");
let turn = 0;
let shown = null;
let weightsKey = null;

async function get(path) {
  const answer = await fetch(`api/${path}`, { signal: AbortSignal.timeout(DEADLINE_MS) });
  if (!answer.ok) throw Object.assign(new Error((await answer.text()).trim()), { status: answer.status });
  return answer.json();
}

function show(content) {
  const fresh = el("main", { id: "view" }, content);
  morph(view, fresh);
  view.querySelectorAll("canvas").forEach((canvas) => canvas.draw(canvas));
}

function draw() {
  if (shown) show(shown.page(shown.data, ui));
}

async function update(mine) {
  const hash = location.hash;
  const found = PAGES.find(([pattern]) => pattern.test(hash));
  let pause = 1000;
  try {
    if (!found) throw Object.assign(new Error("There is no such page."), { status: 404 });
    const [pattern, path, page] = found;
    const data = await get(path(hash.match(pattern)[1]));
    const key = page === views.subnet ? `${data.netuid}:${data.last_update}:${data.last_epoch}` : null;
    if (key !== weightsKey) {
      ui.weights = key && (await get(`weights/${data.netuid}`));
      weightsKey = key;
    }
    if (mine !== turn) return;
    shown = { page, data };
    state.className = "";
    state.textContent = `block ${count(data.block)}`;
    document.title = page === views.subnet ? `${data.netuid} ${data.name} · localnet` : "localnet explorer";
    // Nobody can copy what is redrawn under the mouse.
    if (getSelection().isCollapsed) draw();
    pause = Math.max(1000, Math.min(data.block_time * 1000, 5000));
  } catch (error) {
    if (mine !== turn) return;
    if (error.status === 404) {
      shown = null;
      show(el("p", { class: "trouble" }, error.message));
    }
    state.className = error.status ? "" : "lost";
    state.textContent = error.status ? error.message : "no answer from the chain";
    pause = 3000;
  }
  setTimeout(() => next(mine), pause);
}

function next(mine) {
  if (mine !== turn) return;
  if (document.hidden) document.addEventListener("visibilitychange", () => next(mine), { once: true });
  else update(mine);
}

function restart() {
  turn += 1;
  update(turn);
}

addEventListener("hashchange", () => {
  scrollTo(0, 0);
  restart();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

document.addEventListener("click", (event) => {
  const button = event.target.closest?.("button[data-sort]");
  if (!button) return;
  const [id, column] = button.dataset.sort.split(":");
  const before = ui.sort[id];
  ui.sort[id] = { column: Number(column), down: before?.column === Number(column) ? !before.down : true };
  draw();
});

document.getElementById("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const wanted = event.target.querySelector("input").value.trim();
  const subnet = wanted.match(/^subnet[: ]*(\d+)$/i);
  if (subnet) location.hash = `#/subnet/${subnet[1]}`;
  else if (/^[\d,]+$/.test(wanted)) location.hash = `#/block/${wanted.replaceAll(",", "")}`;
  else if (/^\w+$/.test(wanted)) location.hash = `#/account/${wanted}`;
});

restart();
