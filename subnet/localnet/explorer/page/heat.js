// The weights matrix as a heat map on a canvas: a row per validator, a column per neuron.

import { el } from "./dom.js";
import { SHARE, count, empty } from "./words.js";

const hex = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const rgb = (code) => [1, 3, 5].map((at) => parseInt(code.slice(at, at + 2), 16));

export function heat(weights, data) {
  if (!weights) return empty("Loading.");
  if (!weights.rows.length) return empty("Nobody has set weights yet, or they are not revealed.");
  const side = Math.max(3, Math.min(26, Math.floor(600 / weights.count)));
  const canvas = el("canvas", {
    width: weights.count * side, height: weights.rows.length * side, role: "img",
    "aria-label": `weights of ${weights.rows.length} validators over ${weights.count} neurons`,
  });
  canvas.draw = (node) => draw(node, weights, side);
  return [
    el("div", { class: "heat scroll" }, canvas, el("div", { class: "reading" },
      "share of the row's largest: 0", el("span", { class: "ramp" }), "1 · ",
      `rows uid ${weights.rows.slice(0, 8).map(([uid]) => uid).join(", ")}${weights.rows.length > 8 ? ", …" : ""}; columns uid 0 to ${count(weights.count - 1)}`)),
  ];
}

function draw(canvas, weights, side) {
  const pen = canvas.getContext("2d");
  const [none, low, high] = [hex("--heat-none"), rgb(hex("--heat-0")), rgb(hex("--heat-1"))];
  const gap = side > 6 ? 1 : 0;
  pen.clearRect(0, 0, canvas.width, canvas.height);
  weights.rows.forEach(([, row], y) => {
    const largest = Math.max(...row.map(([, value]) => value), 1);
    pen.fillStyle = none;
    for (let x = 0; x < weights.count; x++) pen.fillRect(x * side, y * side, side - gap, side - gap);
    for (const [uid, value] of row) {
      if (!value) continue;
      const part = value / largest;
      pen.fillStyle = `rgb(${low.map((from, i) => Math.round(from + (high[i] - from) * part)).join()})`;
      pen.fillRect(uid * side, y * side, side - gap, side - gap);
    }
  });
  canvas.onmousemove = (event) => {
    const [x, y] = [Math.floor(event.offsetX / side), Math.floor(event.offsetY / side)];
    const found = weights.rows[y];
    if (!found) return;
    const total = found[1].reduce((sum, [, value]) => sum + value, 0);
    const value = found[1].find(([uid]) => uid === x)?.[1] ?? 0;
    canvas.title = `uid ${found[0]} gives uid ${x}: ${((value / total) * 100).toFixed(2)} % of its weights (${value} of ${SHARE})`;
  };
}
