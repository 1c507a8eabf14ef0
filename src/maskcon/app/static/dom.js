// Build elements. Text goes through textContent only: names of files, classes and kinds may be hostile.

import { shown } from "./keys.js";

const SVG = "http://www.w3.org/2000/svg";
const ICONS = {
  undo: "M4 8h8a4 4 0 0 1 0 8H8M4 8l3.5-3.5M4 8l3.5 3.5",
  redo: "M16 8H8a4 4 0 0 0 0 8h4M16 8l-3.5-3.5M16 8l-3.5 3.5",
  kinds: "M3 4h4v4H3zM9 4h8M9 8h5M3 12h4v4H3zM9 12h8M9 16h5",
  map: "M5 6h.01M9 4h.01M8 8h.01M14 7h.01M16 10h.01M13 11h.01M5 14h.01M8 13h.01M7 16.5h.01M14 15.5h.01M16.5 14h.01",
  search: "M9 15A6 6 0 1 0 9 3a6 6 0 0 0 0 12zM13.5 13.5 17 17",
  check: "M4 10.5 8 14.5 16 5.5",
  ask: "M7 7.5a3 3 0 1 1 4.5 2.6c-1 .6-1.5 1.1-1.5 2.4M10 15.7h.01",
  out: "M10 3v9M6.5 8.5 10 12l3.5-3.5M4 16h12",
  merge: "M4 4c0 6 6 4 6 12M16 4c0 6-6 4-6 12M7.5 13.5 10 16l2.5-2.5",
  split: "M10 17v-5c0-4-6-3-6-8M10 12c0-4 6-3 6-8M2 6l2-2 2 2M14 6l2-2 2 2",
  grip: "M7 5h.01M13 5h.01M7 10h.01M13 10h.01M7 15h.01M13 15h.01",
  close: "M5 5l10 10M15 5 5 15",
  plus: "M10 4v12M4 10h12",
  minus: "M4 10h12",
  move: "M4 10h11M11 6l4 4-4 4",
  junk: "M4 6h12M8 6V4h4v2M6 6l.7 10h6.6L14 6",
  restore: "M4 10a6 6 0 1 0 2-4.5M4 3v3.5h3.5",
  open: "M7 4l6 6-6 6",
  back: "M13 4l-6 6 6 6",
  help: "M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM8 8a2 2 0 1 1 3 1.8c-.7.4-1 .8-1 1.7M10 13.6h.01",
  light: "M10 13a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM10 2v2M10 16v2M2 10h2M16 10h2M4.5 4.5l1.2 1.2M14.3 14.3l1.2 1.2M4.5 15.5l1.2-1.2M14.3 5.7l1.2-1.2",
  dark: "M16 11.5A6.5 6.5 0 0 1 8.5 4a6.5 6.5 0 1 0 7.5 7.5z",
  auto: "M10 17a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM10 3v14M12 4v12M14 5.5v9",
  rect: "M4 5h12v10H4z",
  fit: "M3 7V3h4M13 3h4v4M17 13v4h-4M7 17H3v-4",
  lasso: "M10 4c4 0 7 1.8 7 4.2S14 12.500 10 12.500 3 10.600 3 8.200 6 4 10 4zM6 12c-1.500 1-1.500 3 .5 3.500",
  pan: "M10 3v14M3 10h14M8 5l2-2 2 2M8 15l2 2 2-2M5 8l-2 2 2 2M15 8l2 2-2 2",
  copy: "M7 7h9v9H7zM4 13V4h9",
  file: "M5 3h6l4 4v10H5zM11 3v4h4",
};

const STEERING = /[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

/** Escape control characters and those that reorder a line, as the command line does. */
export const printable = (text) => String(text).replace(STEERING, (found) => `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`);

/**
 * Make an element.
 * @param {string} tag
 * @param {object} props class, text, on: {event: handler}, data: {key: value}; other keys are properties, or attributes
 *   where they hold a hyphen or are named `role`, `for`, `list`.
 * @param {...(Node|string|null)} children
 */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null) continue;
    if (key === "class") node.className = value;
    else if (key === "text") node.textContent = printable(value);
    else if (key === "title" || key === "aria-label") node.setAttribute(key, printable(value));
    else if (key === "on") for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    else if (key === "data") Object.assign(node.dataset, value);
    else if (key.includes("-") || ["role", "for", "list"].includes(key)) node.setAttribute(key, value);
    else node[key] = value;
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 20 20");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

/** Make a button with an icon; without visible text the label is its accessible name. `showKey` prints the key on the button. */
export function button(label, { name = null, text = true, kind = "", key = null, showKey = false, ...props } = {}, onclick = null) {
  const node = el("button", { type: "button", class: `button ${kind}${text ? "" : " bare"}`, ...props });
  if (name) node.append(icon(name));
  if (text) node.append(el("span", { text: label }));
  else node.setAttribute("aria-label", label);
  if (key) node.setAttribute("aria-keyshortcuts", key);
  if (showKey) node.append(el("kbd", { "aria-hidden": "true", text: shown(key) }));
  if (!text || key) node.title = key ? `${label} (${shown(key)})` : label;
  if (onclick) node.addEventListener("click", onclick);
  return node;
}

/** Make the children of `parent` follow `items`: kept by key, created, updated, put in order, removed. */
export function reconcile(parent, items, keyOf, create, update) {
  const before = new Map([...parent.children].map((node) => [node.dataset.key, node]));
  const keys = items.map((item) => String(keyOf(item)));
  const wanted = new Set(keys);
  for (const [key, node] of before) if (!wanted.has(key)) node.remove(); // first, so that the others stay in place
  let place = parent.firstElementChild;
  for (const [number, item] of items.entries()) {
    const key = keys[number];
    let node = before.get(key);
    if (!node) {
      node = create(item);
      node.dataset.key = key;
    }
    update?.(node, item);
    if (node === place) place = place.nextElementSibling;
    else parent.insertBefore(node, place); // a node that is moved loses the focus
  }
}

export const count = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : noun.endsWith("ss") ? "es" : "s"}`;

/** Sort items into lists by key: a Map. */
export function grouped(items, keyOf) {
  const groups = new Map();
  for (const item of items) {
    const key = keyOf(item);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(item);
  }
  return groups;
}

let version = ""; // of the images: thumbnails are cached for long, and another run may use this port later
export const setVersion = (name) => { version = name; };
export const thumb = (id, size = 128) => `/thumb/${id}?size=${size}&v=${version}`;
export const full = (id) => `/image/${id}?v=${version}`;

/** Make a lazily loaded thumbnail; a missing one shows as a grey tile. */
export function thumbnail(id, { size = 128, alt = "", lazy = true } = {}) {
  const image = el("img", { class: "thumb", alt, decoding: "async", draggable: false, data: { id: String(id) } });
  if (lazy) image.loading = "lazy";
  image.addEventListener("error", () => image.classList.add("missing"), { once: true });
  image.src = thumb(id, size);
  return image;
}

/** Wait until calls stop for `ms`. */
export function debounce(handler, ms) {
  let timer = 0;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => handler(...args), ms);
  };
}
