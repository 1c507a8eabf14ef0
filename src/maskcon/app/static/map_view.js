// The part of the plane on screen: zoom, pan, and conversion of places. Places are in -1..1, y downwards on screen.

const MOST = 400; // times the whole map
const PAD = 0.06;

export class MapView {
  constructor(onChange) {
    this.width = 1;
    this.height = 1;
    this.zoom = 1;
    this.centre = [0, 0];
    this.onChange = onChange;
  }

  get scale() { return (Math.min(this.width, this.height) / 2) * (1 - PAD) * this.zoom; }

  get x() { return this.width / 2 - this.centre[0] * this.scale; }

  get y() { return this.height / 2 - this.centre[1] * this.scale; }

  /** Place under a point of the screen. */
  at(x, y) { return [(x - this.x) / this.scale, (y - this.y) / this.scale]; }

  pan(dx, dy) {
    this.centre = [0, 1].map((axis) => Math.min(1.1, Math.max(-1.1, this.centre[axis] - [dx, dy][axis] / this.scale)));
    this.onChange();
  }

  /** Zoom by a factor, with the place under (x, y) kept there. */
  zoomBy(factor, x = this.width / 2, y = this.height / 2) {
    const [px, py] = this.at(x, y);
    this.zoom = Math.min(MOST, Math.max(0.6, this.zoom * factor));
    this.centre = [px - (x - this.width / 2) / this.scale, py - (y - this.height / 2) / this.scale];
    this.pan(0, 0);
  }

  /** Show all points of `places` with these indices. */
  fit(places, indices) {
    let [left, top, right, bottom] = [1, 1, -1, -1];
    for (const i of indices) {
      left = Math.min(left, places[2 * i]);
      right = Math.max(right, places[2 * i]);
      top = Math.min(top, places[2 * i + 1]);
      bottom = Math.max(bottom, places[2 * i + 1]);
    }
    if (left > right) return;
    this.centre = [(left + right) / 2, (top + bottom) / 2];
    const side = Math.max(right - left, bottom - top, 2 / MOST);
    this.zoom = Math.min(MOST, Math.max(1, 2 / (side * 1.15)));
    this.onChange();
  }

  reset() {
    this.zoom = 1;
    this.centre = [0, 0];
    this.onChange();
  }
}
