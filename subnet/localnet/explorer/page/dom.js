// Elements from data, and the change of one tree into another. Text enters the page only as text nodes: what the
// chain says is strangers' words.

const SVG = "http://www.w3.org/2000/svg";

function make(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name === "draw") node.draw = value;
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const el = (tag, attributes, ...children) => make(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => make(document.createElementNS(SVG, tag), attributes, children);

// Makes `old` look like `fresh` and keeps the nodes that are the same in kind, and with them focus, selection and
// scroll positions.
export function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    // A reader who opened it wants it open.
    if (!fresh.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (fresh.draw) old.draw = fresh.draw;
  const [before, after] = [[...old.childNodes], [...fresh.childNodes]];
  after.forEach((child, index) => (index < before.length ? morph(before[index], child) : old.append(child)));
  before.slice(after.length).forEach((child) => child.remove());
}
