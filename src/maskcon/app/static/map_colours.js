// The colours of the map and the legend that explains and filters them.

import { el, button, reconcile, printable } from "./dom.js";
import { categorical, css, muted, sequential } from "./palette.js";
import { BEHIND } from "./points.js";
import { store } from "./store.js";

const SCHEMES = { coarse: "Class", kind: "Kind", confidence: "Confidence" };
const STEPS = [0, 0.25, 0.5, 0.75, 1];

export class Legend {
  constructor(onChange) {
    this.onChange = onChange;
    this.scheme = "coarse";
    this.coarse = null; // number of the class in focus
    this.kind = null; // number of the kind in focus
    this.choices = el("div", { class: "segmented", role: "group", "aria-label": "Colour by" }, ...Object.entries(SCHEMES).map(([name, text]) =>
      button(text, { data: { scheme: name } }, () => { this.scheme = name; this.fill(); this.onChange(); })));
    this.entries = el("ul", { class: "legend-list" });
    this.back = button("All classes", { name: "back", kind: "quiet" }, () => this.focus(null));
    this.title = el("p", { class: "label" });
    this.node = el("aside", { class: "legend", "aria-label": "Legend" }, el("p", { class: "label", text: "Colour by" }), this.choices, this.back, this.title, this.entries);
  }

  /** Show only one class, or one kind of it, in colour. */
  focus(coarse, kind = null) {
    const place = store.state.classes.findIndex((group) => group.name === coarse);
    this.coarse = place < 0 ? null : place;
    const found = store.kinds.findIndex((entry) => entry.coarse === coarse && entry.name === kind);
    this.kind = this.coarse === null || found < 0 ? null : found;
    if (this.coarse !== null && this.scheme === "coarse") this.scheme = "kind";
    this.fill();
    this.onChange();
  }

  /** Whether image `id` takes part: it is of the class in focus. */
  allows = (id) => this.coarse === null || store.labels.coarse[id] === this.coarse;

  /** Colour of an entry of the scheme. Kinds of a class in focus are numbered from 0, so that they differ most. */
  colour(place) {
    if (this.scheme === "confidence") return sequential(place / 255);
    if (this.scheme === "kind" && this.coarse !== null) return categorical(place - this.#firstKind());
    return categorical(place);
  }

  css(id) {
    const { labels } = store;
    return css(this.colour(labels[this.scheme][id]));
  }

  #firstKind() {
    const name = store.state.classes[this.coarse].name;
    return store.kinds.findIndex((kind) => kind.coarse === name);
  }

  fill() {
    if (!store.state) return;
    if (this.coarse !== null && this.coarse >= store.state.classes.length) this.coarse = null;
    if (this.kind !== null && this.kind >= store.kinds.length) this.kind = null;
    for (const node of this.choices.children) node.setAttribute("aria-pressed", String(node.dataset.scheme === this.scheme));
    this.back.hidden = this.coarse === null;
    this.title.hidden = this.coarse === null;
    const inFocus = this.coarse === null ? null : store.state.classes[this.coarse].name;
    this.title.textContent = printable(inFocus ?? "");
    let entries;
    if (this.scheme === "confidence") {
      entries = STEPS.map((value) => ({ key: `confidence ${value}`, name: value === 0 ? "0, between kinds" : value === 1 ? "1, sure" : String(value), colour: sequential(value) }));
    } else if (this.scheme === "coarse") {
      entries = store.state.classes.map((group, place) => ({ key: `class ${group.name}`, name: group.name, colour: this.colour(place), n: group.images, coarse: group.name, on: inFocus === group.name }));
    } else {
      entries = store.kinds.map((kind, place) => ({ key: JSON.stringify([kind.coarse, kind.name]), name: inFocus ? kind.name : `${kind.coarse} / ${kind.name}`,
        colour: this.colour(place), n: kind.size, coarse: kind.coarse, kind: kind.name, on: place === this.kind })).filter((entry) => !inFocus || entry.coarse === inFocus);
    }
    reconcile(this.entries, entries, (entry) => entry.key, () => el("li"), (node, entry) => {
      const dot = el("span", { class: "dot" });
      dot.style.backgroundColor = css(entry.colour);
      const content = [dot, el("span", { class: "class-name", text: entry.name }), el("span", { class: "soft", text: entry.n === undefined ? "" : entry.n.toLocaleString("en") })];
      if (node.firstElementChild?.tagName === "BUTTON" && node.contains(document.activeElement)) node.firstElementChild.replaceChildren(...content);
      else if (entry.coarse === undefined) node.replaceChildren(el("div", { class: "legend-entry" }, ...content));
      else node.replaceChildren(el("button", { type: "button", class: "legend-entry", on: { click: () => (node.entry.on ? this.focus(null) : this.focus(node.entry.coarse, node.entry.kind)) } }, ...content));
      node.entry = entry;
      node.firstElementChild.toggleAttribute("aria-pressed", false);
      if (entry.coarse !== undefined) node.firstElementChild.setAttribute("aria-pressed", String(Boolean(entry.on)));
    });
  }
}

/** Colour of every point as RGBA bytes: by the legend, selected points bright, the rest muted. */
export function colourPoints(legend, { labels, kinds, state }, selection) {
  const n = labels.coarse.length;
  const values = labels[legend.scheme];
  const size = legend.scheme === "confidence" ? 256 : Math.max(kinds.length, state.classes.length) + 1;
  const pack = ([r, g, b], alpha = 255) => ((alpha << 24) | (b << 16) | (g << 8) | r) >>> 0;
  const table = Uint32Array.from({ length: size }, (_, place) => pack(legend.colour(place)));
  const grey = pack(muted(), BEHIND);
  const colours = new Uint32Array(n);
  const chosen = selection.size > 0;
  for (let i = 0; i < n; i += 1) {
    const lit = chosen ? selection.has(i) : legend.allows(i) && (legend.kind === null || labels.kind[i] === legend.kind);
    colours[i] = lit ? table[values[i]] ?? grey : grey;
  }
  return new Uint8Array(colours.buffer);
}
