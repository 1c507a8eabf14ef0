// The layer over the points: names of classes or kinds, and thumbnails when zoomed in.

import { debounce, el, grouped, thumbnail } from "./dom.js";
import { selection } from "./selection.js";
import { store } from "./store.js";

export const FACE = 56; // pixels
const FACES = 140; // at most, so that panning stays smooth
const CROWD = FACES * 12; // with more points in sight, no thumbnails
const SETTLE_MS = 90;
const NAME = [110, 26]; // room that a name takes
const LETTER = 7.5; // pixels

const middle = (values) => values.sort()[values.length >> 1];

export class Overlay {
  constructor(view, legend) {
    this.view = view;
    this.legend = legend;
    this.places = new Float32Array(0);
    this.names = []; // {text, x, y, size}, the largest first
    this.placedAt = null; // the view at the last placement
    this.node = el("div", { class: "overlay", "aria-hidden": "true" });
    this.settle = debounce(() => this.#place(), SETTLE_MS);
  }

  /** Whether thumbnails are shown. */
  get near() { return this.node.querySelector(".thumb") !== null; }

  setPlaces(places) {
    this.places = places;
    this.relabel();
  }

  /** Find the middle of each class, or of each kind of the class in focus. */
  relabel() {
    const { labels, kinds, state } = store;
    const { coarse } = this.legend;
    const values = coarse === null ? labels.coarse : labels.kind;
    const shown = [...Array(this.places.length / 2).keys()].filter(this.legend.allows);
    const groups = grouped(shown, (i) => values[i]);
    this.names = [...groups].map(([value, ids]) => ({
      text: (coarse === null ? state.classes : kinds)[value]?.name ?? "", size: ids.length,
      x: middle(Float32Array.from(ids, (i) => this.places[2 * i])), y: middle(Float32Array.from(ids, (i) => this.places[2 * i + 1])),
    })).filter(({ text }) => text).sort((a, b) => b.size - a.size);
    this.settle();
  }

  /** Move everything as one layer until it is placed again. */
  follow() {
    if (!this.placedAt) return;
    const { view, placedAt } = this;
    const by = view.scale / placedAt.scale;
    this.node.style.transform = `translate(${view.x - placedAt.x * by}px, ${view.y - placedAt.y * by}px) scale(${by})`;
  }

  #place() {
    if (!store.labels) return;
    const { scale, x, y } = this.view;
    this.placedAt = { scale, x, y };
    this.node.style.transform = "none";
    const kept = new Map([...this.node.querySelectorAll(".thumb")].map((node) => [Number(node.dataset.id), node]));
    const faces = this.#faces();
    this.node.replaceChildren(...(faces.length ? faces.map((i) => this.#face(i, kept.get(i))) : this.#labels()));
  }

  #faces() {
    const { places, legend, view } = this;
    const [left, top] = view.at(0, 0);
    const [right, bottom] = view.at(view.width, view.height);
    const shown = [];
    const taken = new Set();
    let seen = 0;
    for (let i = 0; i < places.length / 2; i += 1) {
      const px = places[2 * i];
      const py = places[2 * i + 1];
      if (px < left || px > right || py < top || py > bottom || !legend.allows(i)) continue;
      seen += 1;
      if (seen > CROWD) return [];
      const cell = `${Math.floor((px * view.scale) / FACE)} ${Math.floor((py * view.scale) / FACE)}`;
      if (taken.has(cell) || taken.size >= FACES) continue;
      taken.add(cell);
      shown.push(i);
    }
    return seen <= CROWD / 4 || view.zoom >= 4 ? shown : [];
  }

  #face(i, before) {
    const { places, view, legend } = this;
    const node = before ?? thumbnail(i, { lazy: false });
    node.style.transform = `translate(${places[2 * i] * view.scale + view.x - FACE / 2}px, ${places[2 * i + 1] * view.scale + view.y - FACE / 2}px)`;
    node.style.borderColor = legend.css(i);
    node.classList.toggle("selected", selection.has(i));
    return node;
  }

  #labels() {
    const { view } = this;
    const taken = [];
    const nodes = [];
    for (const { text, x, y } of this.names) {
      const [px, py] = [x * view.scale + view.x, y * view.scale + view.y];
      const width = Math.max(NAME[0] / 2, text.length * LETTER);
      if (px < 0 || py < 0 || px > view.width || py > view.height) continue;
      if (taken.some(([ox, oy, other]) => Math.abs(ox - px) < (width + other) / 2 && Math.abs(oy - py) < NAME[1])) continue;
      taken.push([px, py, width]);
      const node = el("span", { class: "place", text });
      node.style.transform = `translate(${px}px, ${py}px) translate(-50%, -50%)`;
      nodes.push(node);
    }
    return nodes;
  }
}
