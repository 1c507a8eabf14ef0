// A grid of images that draws only the rows in sight: a listbox of any length, worked by mouse, touch and keyboard.

import { el, icon, thumbnail } from "./dom.js";
import { selection } from "./selection.js";
import { describe, facts } from "./store.js";

const GAP = 6;
const HEADING = 40;
const SPARE_ROWS = 3; // drawn beyond the edges, so that scrolling shows no holes
let grids = 0;

export class Grid {
  /**
   * @param {{label: string, size?: number, onOpen: (id: number, ids: number[]) => void}} options
   *   size: wanted width of a tile in pixels; tiles grow to fill the row
   */
  constructor({ label, size = 112, onOpen }) {
    this.name = `grid${(grids += 1)}`;
    this.size = size;
    this.onOpen = onOpen;
    this.sections = [];
    this.ids = [];
    this.captions = null;
    this.focus = 0;
    this.anchor = 0;
    this.tiles = new Map(); // place -> element
    this.content = el("div", { class: "grid-content", role: "presentation" });
    this.node = el("div", {
      class: "grid", role: "listbox", tabIndex: 0, "aria-multiselectable": "true", "aria-label": label,
      on: {
        keydown: (event) => this.#key(event), click: (event) => this.#click(event), scroll: () => this.draw(),
        focus: () => this.#mark(),
      },
    }, this.content);
    selection.onChange(() => this.refresh());
    new ResizeObserver(() => this.#layout()).observe(this.node);
  }

  /**
   * Show these images.
   * @param {{title?: string, ids: number[]}[]} sections
   * @param {Map<number, string>|null} captions text under an image, by id
   */
  set(sections, captions = null) {
    this.sections = sections.filter((section) => section.ids.length);
    this.captions = captions;
    this.ids = this.sections.flatMap((section) => section.ids);
    this.focus = Math.min(this.focus, Math.max(0, this.ids.length - 1));
    this.anchor = this.focus;
    this.#layout();
  }

  resize(size) {
    this.size = size;
    this.#layout();
  }

  top() {
    this.focus = 0;
    this.node.scrollTop = 0;
  }

  #layout() {
    const width = this.content.clientWidth - 2 * GAP;
    if (width <= 0) return;
    this.columns = Math.max(1, Math.floor((width + GAP) / (this.size + GAP)));
    this.tile = Math.floor((width - GAP * (this.columns - 1)) / this.columns);
    this.row = this.tile + GAP + (this.captions ? 20 : 0);
    this.blocks = []; // per section: first place, top, number of images
    let top = GAP;
    let first = 0;
    this.content.replaceChildren();
    this.tiles.clear();
    for (const { title, ids } of this.sections) {
      if (title) {
        const heading = el("div", { class: "grid-heading", role: "presentation", text: title });
        heading.style.top = `${top}px`;
        this.content.append(heading);
        top += HEADING;
      }
      this.blocks.push({ first, top, length: ids.length });
      top += Math.ceil(ids.length / this.columns) * this.row;
      first += ids.length;
    }
    this.content.style.height = `${top}px`;
    this.draw();
  }

  #block(place) {
    return this.blocks.findLast((block) => block.first <= place);
  }

  #position(place) {
    const block = this.#block(place);
    const offset = place - block.first;
    return {
      x: GAP + (offset % this.columns) * (this.tile + GAP),
      y: block.top + Math.floor(offset / this.columns) * this.row,
    };
  }

  /** Draw the rows in sight. */
  draw() {
    if (!this.blocks || !this.node.clientHeight) return;
    const margin = SPARE_ROWS * this.row;
    const above = this.node.scrollTop - margin;
    const below = this.node.scrollTop + this.node.clientHeight + margin;
    const wanted = new Set();
    for (const { first, top, length } of this.blocks) {
      const from = Math.max(0, Math.floor((above - top) / this.row)) * this.columns;
      const to = Math.min(length, (Math.floor((below - top) / this.row) + 1) * this.columns);
      for (let offset = from; offset < to; offset += 1) wanted.add(first + offset);
    }
    if (this.ids.length) wanted.add(this.focus); // aria-activedescendant names it, also out of sight
    for (const [place, tile] of this.tiles) {
      if (wanted.has(place)) continue;
      tile.remove();
      this.tiles.delete(place);
    }
    for (const place of wanted) {
      if (!this.tiles.has(place)) {
        const tile = this.#make(place);
        this.tiles.set(place, tile);
        this.content.append(tile);
      }
    }
    this.#mark();
  }

  #make(place) {
    const id = this.ids[place];
    const { x, y } = this.#position(place);
    const tile = el("div", {
      class: `tile ${facts(id).role}`, role: "option", id: `${this.name}-${place}`,
      data: { place: String(place), id: String(id) }, "aria-posinset": String(place + 1), "aria-setsize": String(this.ids.length),
      "aria-selected": String(selection.has(id)), "aria-label": this.#label(id),
    }, thumbnail(id, { size: this.tile > 150 ? 256 : 128, lazy: false }), el("span", { class: "tick" }, icon("check")));
    if (this.captions) tile.append(el("span", { class: "caption", text: this.captions.get(id) ?? "" }));
    tile.style.transform = `translate(${x}px, ${y}px)`;
    tile.style.width = `${this.tile}px`;
    tile.style.height = `${this.row - GAP}px`;
    return tile;
  }

  #label(id) {
    const caption = this.captions?.get(id);
    return `Image ${id}: ${describe(id)}${caption ? `, ${caption}` : ""}`;
  }

  /** Follow a changed selection or changed labels without a new layout. */
  refresh() {
    for (const tile of this.tiles.values()) {
      const id = Number(tile.dataset.id);
      tile.className = `tile ${facts(id).role}`;
      tile.setAttribute("aria-selected", String(selection.has(id)));
      tile.setAttribute("aria-label", this.#label(id));
    }
    this.node.classList.toggle("selecting", selection.size > 0);
    this.#mark();
  }

  #mark() {
    for (const tile of this.tiles.values()) tile.classList.toggle("focus", Number(tile.dataset.place) === this.focus);
    if (this.ids.length) this.node.setAttribute("aria-activedescendant", `${this.name}-${this.focus}`);
    else this.node.removeAttribute("aria-activedescendant");
  }

  #click(event) {
    const tile = event.target.closest(".tile");
    if (!tile) return;
    const place = Number(tile.dataset.place);
    const id = this.ids[place];
    if (event.shiftKey) this.#extend(place);
    else if (event.target.closest(".tick") || event.ctrlKey || event.metaKey || selection.size) selection.toggle(id);
    else this.onOpen(id, this.ids);
    this.focus = place;
    if (!event.shiftKey) this.anchor = place;
    this.#mark();
  }

  #extend(place) {
    const [from, to] = [Math.min(this.anchor, place), Math.max(this.anchor, place)];
    selection.add(this.ids.slice(from, to + 1));
  }

  #key(event) {
    if (!this.ids.length) return;
    const page = Math.max(1, Math.floor(this.node.clientHeight / this.row)) * this.columns;
    const steps = {
      ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns, PageUp: -page, PageDown: page,
      Home: -this.ids.length, End: this.ids.length,
    };
    const id = this.ids[this.focus];
    if (event.key in steps && !event.altKey && !event.ctrlKey) {
      this.focus = Math.min(this.ids.length - 1, Math.max(0, this.focus + steps[event.key]));
      if (event.shiftKey) this.#extend(this.focus);
      else this.anchor = this.focus;
      this.#reveal();
    } else if (event.key === " " || event.key === "x") {
      selection.toggle(id);
      this.anchor = this.focus;
    } else if (event.key === "Enter") this.onOpen(id, this.ids);
    else if (event.key === "a" && (event.ctrlKey || event.metaKey)) selection.add(this.ids);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  #reveal() {
    const { y } = this.#position(this.focus);
    const { scrollTop, clientHeight } = this.node;
    if (y < scrollTop) this.node.scrollTop = y - GAP - HEADING;
    else if (y + this.row > scrollTop + clientHeight) this.node.scrollTop = y + this.row - clientHeight;
    this.draw();
  }
}
