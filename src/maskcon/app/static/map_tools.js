// Pointers on the map: drag to pan, wheel and pinch to zoom, lasso and rectangle to select.

const CLICK = 4; // pixels that a click may move

/** Whether a place lies inside a polygon (even-odd rule). */
function inside(polygon, x, y) {
  let odd = false;
  for (let i = 0, j = polygon.length - 1; i < polygon.length; j = i, i += 1) {
    const [ax, ay] = polygon[i];
    const [bx, by] = polygon[j];
    if (ay > y !== by > y && x < ((bx - ax) * (y - ay)) / (by - ay) + ax) odd = !odd;
  }
  return odd;
}

/** Indices of the points inside a polygon of places. */
export function pointsInside(places, polygon, allowed) {
  const xs = polygon.map(([x]) => x);
  const ys = polygon.map(([, y]) => y);
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const found = [];
  for (let i = 0; i < places.length / 2; i += 1) {
    const x = places[2 * i];
    const y = places[2 * i + 1];
    if (x >= left && x <= right && y >= top && y <= bottom && allowed(i) && inside(polygon, x, y)) found.push(i);
  }
  return found;
}

export const rectangle = ([ax, ay], [bx, by]) => [[ax, ay], [bx, ay], [bx, by], [ax, by]];

/**
 * Listen to pointers on the map.
 * @param {HTMLElement} stage
 * @param {SVGPolygonElement} outline shows what is being drawn
 * @param {object} map {view, tool(): "pan"|"rect"|"lasso", click(x, y, event), hover(x, y), leave(), select(polygon, event), moving(on)}
 */
export function handle(stage, outline, map) {
  const pointers = new Map();
  let drawn = null; // corners on screen
  let start = null;
  const here = (event) => {
    const box = stage.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const show = () => outline.setAttribute("points", drawn ? drawn.map((corner) => corner.join(",")).join(" ") : "");

  stage.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.target.closest("button, a")) return;
    stage.setPointerCapture(event.pointerId);
    map.leave();
    const point = here(event);
    pointers.set(event.pointerId, point);
    start = { point, moved: 0 };
    const drawing = event.shiftKey ? "lasso" : map.tool();
    if (pointers.size === 1 && drawing !== "pan") drawn = drawing === "rect" ? rectangle(point, point) : [point];
    else drawn = null;
    if (drawn) drawn.tool = drawing;
    show();
  });
  stage.addEventListener("pointermove", (event) => {
    const point = here(event);
    const before = pointers.get(event.pointerId);
    if (!before) return map.hover(...point);
    start.moved = Math.max(start.moved, Math.hypot(point[0] - start.point[0], point[1] - start.point[1]));
    if (drawn) {
      if (drawn.tool === "rect") drawn.splice(0, 4, ...rectangle(start.point, point));
      else drawn.push(point);
      show();
    } else if (pointers.size === 2) {
      const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
      const distance = (a, b) => Math.max(1, Math.hypot(a[0] - b[0], a[1] - b[1]));
      map.view.zoomBy(distance(point, other) / distance(before, other), (point[0] + other[0]) / 2, (point[1] + other[1]) / 2);
      map.view.pan((point[0] - before[0]) / 2, (point[1] - before[1]) / 2);
    } else if (start.moved > CLICK) {
      map.moving(true);
      map.view.pan(point[0] - before[0], point[1] - before[1]);
    }
    pointers.set(event.pointerId, point);
    return null;
  });
  const end = (event) => {
    if (!pointers.delete(event.pointerId)) return;
    map.moving(false);
    const shape = drawn;
    drawn = null;
    show();
    if (event.type === "pointercancel") return;
    if (start.moved <= CLICK) map.click(...here(event), event);
    else if (shape && shape.length > 2) map.select(shape.map(([x, y]) => map.view.at(x, y)), event);
  };
  stage.addEventListener("pointerup", end);
  stage.addEventListener("pointercancel", end);
  stage.addEventListener("pointerleave", () => map.leave());
  stage.addEventListener("wheel", (event) => {
    event.preventDefault();
    map.leave();
    const pixels = event.deltaMode === 1 ? event.deltaY * 30 : event.deltaY;
    map.view.zoomBy(Math.exp(-Math.max(-300, Math.min(300, pixels)) / 350), ...here(event));
  }, { passive: false });
  stage.addEventListener("dblclick", (event) => { if (map.tool() === "pan") map.view.zoomBy(2, ...here(event)); });
}
