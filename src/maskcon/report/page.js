"use strict";
// The interactive map of the report. All data stand in the page itself; nothing is fetched.
(() => {
  const root = document.documentElement;
  root.dataset.errors = "0";
  addEventListener("error", () => { root.dataset.errors = String(Number(root.dataset.errors) + 1); });

  const source = document.getElementById("map-data");
  if (source) startMap(JSON.parse(source.textContent));
  root.dataset.ready = "true";

  function startMap(data) {
    const find = (name) => document.getElementById(name);
    const canvas = find("map-canvas");
    const card = find("map-card");
    const spoken = find("map-spoken");
    const list = find("map-list");
    const layoutChoice = find("map-layout");
    const colourChoice = find("map-colour");
    const darkness = matchMedia("(prefers-color-scheme: dark)");
    const state = { layout: 0, colouring: 0, hidden: new Set(), chosen: -1 };
    let places = []; // pixel positions, one [x, y] a point

    const labelOf = (index) => data.colourings[state.colouring].labels[index];
    const visible = (index) => !state.hidden.has(labelOf(index));

    // One shape and colour a class, as in the printed figures.
    function drawMark(pen, shape, colour, x, y, r) {
      pen.fillStyle = colour;
      pen.beginPath();
      const corners = (points) => {
        points.forEach(([dx, dy], i) => (i ? pen.lineTo(x + dx * r, y + dy * r) : pen.moveTo(x + dx * r, y + dy * r)));
        pen.closePath();
      };
      const cross = [[-.35, -1], [.35, -1], [.35, -.35], [1, -.35], [1, .35], [.35, .35], [.35, 1], [-.35, 1], [-.35, .35], [-1, .35], [-1, -.35], [-.35, -.35]];
      const turned = (points) => points.map(([dx, dy]) => [(dx - dy) * .71, (dx + dy) * .71]);
      const star = [...Array(10).keys()].map((i) => {
        const length = i % 2 ? .5 : 1.2;
        return [length * Math.sin(i * Math.PI / 5), -length * Math.cos(i * Math.PI / 5)];
      });
      const shapes = {
        s: [[-.88, -.88], [.88, -.88], [.88, .88], [-.88, .88]],
        "^": [[0, -1.1], [1.05, .8], [-1.05, .8]],
        v: [[0, 1.1], [1.05, -.8], [-1.05, -.8]],
        D: [[0, -1.15], [1.15, 0], [0, 1.15], [-1.15, 0]],
        P: cross,
        X: turned(cross),
        "*": star,
      };
      if (shapes[shape]) corners(shapes[shape]);
      else pen.arc(x, y, r, 0, 2 * Math.PI);
      pen.fill();
    }

    function prepared(target, width, height) {
      const ratio = devicePixelRatio || 1;
      target.width = Math.round(width * ratio);
      target.height = Math.round(height * ratio);
      const pen = target.getContext("2d");
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      return pen;
    }

    function layOut(width, height) {
      const points = data.layouts[state.layout].points;
      const xs = points.map((p) => p[0]);
      const ys = points.map((p) => p[1]);
      const middle = [(Math.min(...xs) + Math.max(...xs)) / 2, (Math.min(...ys) + Math.max(...ys)) / 2];
      const spans = [Math.max(...xs) - Math.min(...xs) || 1, Math.max(...ys) - Math.min(...ys) || 1];
      const unit = Math.min((width - 40) / spans[0], (height - 40) / spans[1]); // the same on both axes
      places = points.map((p) => [
        width / 2 + (p[0] - middle[0]) * unit,
        height / 2 - (p[1] - middle[1]) * unit,
      ]);
    }

    function draw() {
      const width = canvas.clientWidth;
      const height = canvas.clientHeight;
      const pen = prepared(canvas, width, height);
      layOut(width, height);
      const colouring = data.colourings[state.colouring];
      const radius = places.length > 1500 ? 2.5 : places.length > 400 ? 3.5 : 5;
      pen.globalAlpha = .85;
      places.forEach(([x, y], index) => {
        if (!visible(index)) return;
        const look = colouring.looks[labelOf(index)];
        drawMark(pen, look[1], look[0], x, y, radius);
      });
      pen.globalAlpha = 1;
      if (state.chosen >= 0) {
        const [x, y] = places[state.chosen];
        pen.strokeStyle = getComputedStyle(root).getPropertyValue("--ink");
        pen.lineWidth = 2;
        pen.beginPath();
        pen.arc(x, y, radius + 5, 0, 2 * Math.PI);
        pen.stroke();
      }
      root.dataset.points = String(places.filter((_, index) => visible(index)).length);
    }

    function describe(index) {
      return data.colourings.map((c) => c.names[c.labels[index]]);
    }

    function choose(index, speak) {
      state.chosen = index;
      draw();
      card.hidden = index < 0;
      if (index < 0) return;
      showCard(index);
      if (speak) spoken.textContent = describe(index).join(", ") + ", image " + data.ids[index];
    }

    function showCard(index) {
      const thumb = find("map-thumb");
      const side = 2 * data.tile;
      const column = index % data.columns;
      const row = Math.floor(index / data.columns);
      thumb.style.width = thumb.style.height = side + "px";
      thumb.style.backgroundImage = `url("${data.sheet}")`;
      thumb.style.backgroundSize = data.columns * side + "px auto";
      thumb.style.backgroundPosition = `${-column * side}px ${-row * side}px`;
      const [first, second] = describe(index);
      find("map-first").textContent = first;
      find("map-second").textContent = second || "";
      find("map-id").textContent = "image " + data.ids[index];
      const [x, y] = places[index];
      card.style.left = card.style.top = "0"; // measured where the edge of the map does not squeeze it
      const left = Math.min(Math.max(4, x + 14), canvas.clientWidth - card.offsetWidth - 4);
      const below = y + 14 + card.offsetHeight < canvas.clientHeight;
      card.style.left = Math.max(4, left) + "px";
      card.style.top = (below ? y + 14 : Math.max(4, y - 14 - card.offsetHeight)) + "px";
    }

    function nearest(x, y, reach) {
      let best = -1;
      let distance = reach * reach;
      places.forEach(([px, py], index) => {
        const squared = (px - x) ** 2 + (py - y) ** 2;
        if (squared < distance && visible(index)) [best, distance] = [index, squared];
      });
      return best;
    }

    // The nearest visible point in a direction; sideways distance counts double, so that rows feel like rows.
    function neighbour(from, dx, dy) {
      let best = -1;
      let cost = Infinity;
      places.forEach(([px, py], index) => {
        if (index === from || !visible(index)) return;
        const along = (px - places[from][0]) * dx + (py - places[from][1]) * dy;
        const aside = Math.abs((px - places[from][0]) * dy) + Math.abs((py - places[from][1]) * dx);
        if (along > .5 && along + 2 * aside < cost) [best, cost] = [index, along + 2 * aside];
      });
      return best < 0 ? from : best;
    }

    function pointed(event) {
      const box = canvas.getBoundingClientRect();
      choose(nearest(event.clientX - box.left, event.clientY - box.top, event.pointerType === "touch" ? 32 : 16), false);
    }

    function pressed(event) {
      const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
      if (event.key === "Escape") return choose(-1, false);
      if (!ways[event.key]) return undefined;
      event.preventDefault();
      const start = state.chosen >= 0 && visible(state.chosen) ? state.chosen : -1;
      return choose(start < 0 ? nearest(canvas.clientWidth / 2, canvas.clientHeight / 2, 1e6) : neighbour(start, ...ways[event.key]), true);
    }

    function fillLegend() {
      const colouring = data.colourings[state.colouring];
      const counts = new Map();
      colouring.labels.forEach((label) => counts.set(label, (counts.get(label) || 0) + 1));
      const rows = [...counts.keys()].sort((a, b) => a - b).map((label) => {
        const row = document.createElement("label");
        const box = Object.assign(document.createElement("input"), { type: "checkbox", checked: !state.hidden.has(label) });
        box.addEventListener("change", () => {
          if (box.checked) state.hidden.delete(label);
          else state.hidden.add(label);
          refresh();
        });
        const swatch = document.createElement("canvas");
        swatch.style.width = swatch.style.height = "14px";
        drawMark(prepared(swatch, 14, 14), colouring.looks[label][1], colouring.looks[label][0], 7, 7, 5);
        const name = Object.assign(document.createElement("span"), { textContent: colouring.names[label] });
        const count = Object.assign(document.createElement("output"), { textContent: counts.get(label) });
        row.append(box, swatch, name, count);
        return row;
      });
      list.replaceChildren(...rows);
    }

    function refresh() {
      if (state.chosen >= 0 && !visible(state.chosen)) choose(-1, false);
      else choose(state.chosen, false);
    }

    function showAll(all) {
      state.hidden = new Set(all ? [] : data.colourings[state.colouring].labels);
      fillLegend();
      refresh();
    }

    layoutChoice.addEventListener("change", () => { state.layout = layoutChoice.selectedIndex; refresh(); });
    colourChoice.addEventListener("change", () => { state.colouring = colourChoice.selectedIndex; showAll(true); });
    find("map-all").addEventListener("click", () => showAll(true));
    find("map-none").addEventListener("click", () => showAll(false));
    canvas.addEventListener("pointermove", pointed);
    canvas.addEventListener("pointerdown", pointed);
    canvas.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") choose(-1, false); });
    canvas.addEventListener("keydown", pressed);
    canvas.addEventListener("blur", () => choose(-1, false));
    darkness.addEventListener("change", () => draw());
    new ResizeObserver(() => refresh()).observe(canvas);
    fillLegend();
    draw();
    // #point=12 opens the page with that point chosen.
    const asked = /^#point=(\d+)$/.exec(location.hash);
    if (asked && Number(asked[1]) < places.length) choose(Number(asked[1]), true);
  }
})();
