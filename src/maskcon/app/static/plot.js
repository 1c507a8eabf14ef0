// The drawing of the points. It is larger than the stage, so that it can be moved as a layer; many points are redrawn only
// when the margin is used up or the motion ends. Without a graphics card that is several times faster.

import { debounce, el } from "./dom.js";
import { painter } from "./points.js";

const MARGIN = 0.3; // of the stage, on each side
const FEW = 8000; // points, at most, that are redrawn in every frame
const STRETCH = 1.5; // a drawing is stretched up to this factor, then redrawn
const STILL_MS = 120;
const SPREAD = 420; // size of a point times the root of their number
const [SMALLEST, LARGEST] = [2.5, 14]; // pixels

export class Plot {
  constructor(view) {
    this.view = view;
    this.canvas = el("canvas", { "aria-hidden": "true" });
    this.painter = painter(this.canvas);
    this.count = 0;
    this.drawnAt = null;
    this.finish = debounce(() => this.draw(), STILL_MS);
  }

  setPlaces(places) {
    this.count = places.length / 2;
    this.painter.setPlaces(places);
  }

  setColours(colours) {
    this.painter.setColours(colours);
    this.drawnAt = null;
  }

  resize() {
    const { width, height } = this.view;
    const ratio = Math.min(2, devicePixelRatio);
    [this.left, this.top] = [Math.round(width * MARGIN), Math.round(height * MARGIN)];
    this.width = width + 2 * this.left;
    this.height = height + 2 * this.top;
    this.canvas.width = this.width * ratio;
    this.canvas.height = this.height * ratio;
    Object.assign(this.canvas.style, { left: `${-this.left}px`, top: `${-this.top}px`, width: `${this.width}px`, height: `${this.height}px` });
    this.ratio = ratio;
    this.drawnAt = null;
  }

  /** Follow the view: move the drawing, or redraw it. */
  update() {
    if (!this.width) return;
    const { view, drawnAt } = this;
    if (this.count <= FEW || !drawnAt) return void this.draw();
    const by = view.scale / drawnAt.scale;
    const x = this.left - by * (drawnAt.x + this.left) + view.x;
    const y = this.top - by * (drawnAt.y + this.top) + view.y;
    const covers = x <= this.left && y <= this.top && x + by * this.width >= this.left + view.width && y + by * this.height >= this.top + view.height;
    if (!covers || by > STRETCH || by < 1 / STRETCH) return void this.draw();
    this.canvas.style.transform = `translate(${x}px, ${y}px) scale(${by})`;
    this.finish();
  }

  draw() {
    const { view } = this;
    const { scale, x, y } = view;
    const size = Math.min(LARGEST, Math.max(SMALLEST, (SPREAD / Math.sqrt(this.count + 1)) * view.zoom ** 0.4));
    this.painter.draw({ scale, x: x + this.left, y: y + this.top, width: this.width, height: this.height, size, ratio: this.ratio });
    this.canvas.style.transform = "none";
    this.drawnAt = { scale, x, y };
  }
}
