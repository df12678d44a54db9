// Numbers, times, addresses and the parts that every view is made of.

import { el, svg } from "./dom.js";

export const RAO = 1e9;
export const SHARE = 65535;

export const count = (value) => value.toLocaleString("en-US");

// An amount of rao, with as many decimals as tell something.
export function amount(rao, digits) {
  const value = rao / RAO;
  const decimals = digits ?? (value === 0 ? 0 : Math.abs(value) >= 1e5 ? 1 : Math.abs(value) >= 100 ? 2 : 4);
  if (value !== 0 && Math.abs(value) < 10 ** -decimals / 2) return `${count(rao)} rao`;
  return value.toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

export const tao = (rao, digits) => `${amount(rao, digits)} τ`;
export const share = (value) => (value / SHARE).toFixed(4);

export function span(ms) {
  const s = ms / 1000;
  if (s < 1) return `${Math.max(ms, 0).toFixed(0)} ms`;
  if (s < 90) return `${s < 10 ? s.toFixed(1) : s.toFixed(0)} s`;
  return s < 5400 ? `${(s / 60).toFixed(0)} min` : s < 172800 ? `${(s / 3600).toFixed(1)} h` : `${(s / 86400).toFixed(0)} d`;
}

export const ago = (time, now) => (time ? `${span(Math.max(now - time, 0))} ago` : "–");
export const moment = (time) => (time ? new Date(time).toISOString().replace("T", " ").slice(0, 19) + " UTC" : "–");

// Strangers' text: isolated, so that its direction marks end with it.
export const said = (text) => el("bdi", {}, text);

export function account(address, labels, whole) {
  if (!address) return el("span", { class: "muted" }, "–");
  const label = labels[address];
  const shown = whole ? address : label ?? `${address.slice(0, 6)}…${address.slice(-4)}`;
  return el("a", { class: label && !whole ? "" : "key", href: `#/account/${address}`, title: address }, shown);
}

export const blockLink = (number) => el("a", { href: `#/block/${number}` }, count(number));
export const subnetLink = (netuid, name) =>
  el("a", { href: `#/subnet/${netuid}` }, `${netuid} `, said(name.length > 40 ? `${name.slice(0, 39)}…` : name));

export const tile = (name, value, note) =>
  el("div", { class: "tile" }, el("div", { class: "name" }, name), el("div", { class: "value" }, value),
    el("div", { class: "note" }, note ?? "\u00a0"));

export const panel = (title, note, ...content) =>
  el("section", { class: "panel" }, el("h2", {}, title, note ? el("small", {}, note) : null), ...content);

export const empty = (text) => el("p", { class: "empty" }, text);

export const bar = (part) =>
  el("span", { class: "bar", "aria-hidden": "true" }, svgBar(Math.min(Math.max(part, 0), 1)));

// The policy of this page allows no style attributes; a drawing's own attributes say the width.
const svgBar = (part) =>
  svg("svg", { width: 56, height: 7, viewBox: "0 0 1 1", preserveAspectRatio: "none" },
    svg("rect", { width: part.toFixed(4), height: 1, class: "fill" }));

export function spark(values) {
  if (values.length < 2) return el("span", { class: "muted" }, "–");
  const top = Math.max(...values, 1);
  const points = values.map((value, i) => `${((i / (values.length - 1)) * 84).toFixed(1)},${(17 - (value / top) * 16).toFixed(1)}`);
  return svg("svg", { class: "spark", viewBox: "0 0 84 18", role: "img", "aria-label": "the last epochs" },
    svg("path", { d: `M${points.join("L")}` }));
}

// columns: { title, number, cell(row), key(row) }; a key makes a column sortable.
export function table(columns, rows, { id, sort } = {}) {
  if (sort && id) {
    const { key } = columns[sort.column];
    rows = [...rows].sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) * (sort.down ? -1 : 1));
  }
  const head = columns.map((column, i) => {
    const mark = sort && sort.column === i ? (sort.down ? " ↓" : " ↑") : "";
    const title = id && column.key ? el("button", { "data-sort": `${id}:${i}` }, column.title + mark) : column.title;
    return el("th", { class: column.number ? "number" : null, title: column.help, scope: "col" }, title);
  });
  const body = rows.map((row) =>
    el("tr", {}, columns.map((column) => el("td", { class: [column.number && "number", column.class].filter(Boolean).join(" ") || null }, column.cell(row)))));
  return el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, body));
}

export function result(extrinsic) {
  if (extrinsic.ok === null) return el("span", { class: "muted", title: "its events are no longer kept" }, "not kept");
  return extrinsic.ok ? el("span", { class: "good" }, "✓ done") : el("span", { class: "bad" }, `✗ ${extrinsic.error}`);
}

// What a call was given, in a few words.
export function told(extrinsic, labels) {
  const parts = Object.entries(extrinsic.arguments).map(([name, value]) => {
    if (typeof value === "string" && value in labels) value = labels[value];
    else if (typeof value === "string" && /^5\w{47}$/.test(value)) value = `${value.slice(0, 6)}…${value.slice(-4)}`;
    else if (typeof value === "number" && /amount|value|stake|tao|limit_price/.test(name)) value = `${amount(value)}`;
    else if (value !== null && typeof value === "object") {
      value = value.call_module ? `${value.call_module}.${value.call_function}` : JSON.stringify(value);
    }
    value = String(value);
    return `${name} ${value.length > 40 ? `${value.slice(0, 39)}…` : value}`;
  });
  return said(parts.join(", "));
}
