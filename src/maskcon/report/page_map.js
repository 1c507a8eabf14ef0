// The interactive map. All data are in the page itself; nothing is fetched.
(() => {
  const root = document.documentElement;
  const source = document.getElementById("map-data");
  if (source) startMap(JSON.parse(source.textContent));
  root.dataset.ready = "true";

  function startMap(data) {
    const find = (name) => document.getElementById(name);
    const make = (name, values) => Object.assign(document.createElement(name), values);
    const canvas = find("map-canvas");
    const card = find("map-card");
    const spoken = find("map-spoken");
    const list = find("map-list");
    const layoutChoice = find("map-layout");
    const colourChoice = find("map-colour");
    const state = { layout: 0, colouring: 0, hidden: new Set(), chosen: -1, pinned: -1 };
    const thumbSide = 96;
    const manyClasses = 20;
    let places = []; // pixel position [x, y] of each point
    let radius = 5;
    const base = document.createElement("canvas"); // all points, painted once; hovering only copies it

    const labelOf = (index) => data.colourings[state.colouring].labels[index];
    const visible = (index) => !state.hidden.has(labelOf(index));
    const describe = (index) => data.colourings.map((c) => c.names[c.labels[index]]);

    // Thumbnails are on sheets, which are decoded when first needed.
    const sheets = new Map();
    function withSheet(number, then) {
      if (!sheets.has(number)) {
        const image = new Image();
        sheets.set(number, image);
        image.src = data.sheets[number].uri;
      }
      const image = sheets.get(number);
      if (image.complete && image.naturalWidth) then(image);
      else image.addEventListener("load", () => then(image), { once: true });
    }

    function drawThumb(target, index, side) {
      const number = Math.floor(index / data.perSheet);
      const within = index % data.perSheet;
      const columns = data.sheets[number].columns;
      const [width, height] = data.shapes ? data.shapes[index] : [data.tile, data.tile];
      const scale = side / Math.max(width, height);
      const pen = prepared(target, Math.round(width * scale), Math.round(height * scale));
      target.dataset.image = String(index);
      withSheet(number, (image) => {
        if (target.dataset.image !== String(index)) return; // another image is wanted by now
        const left = (within % columns) * data.tile + Math.floor((data.tile - width) / 2);
        const top = Math.floor(within / columns) * data.tile + Math.floor((data.tile - height) / 2);
        pen.imageSmoothingEnabled = data.tile > 32; // small images show their pixels
        pen.drawImage(image, left, top, width, height, 0, 0, Math.round(width * scale), Math.round(height * scale));
        target.dataset.drawn = String(index);
      });
    }

    // One shape and colour per class, as in the printed figures.
    const cross = [[-.35, -1], [.35, -1], [.35, -.35], [1, -.35], [1, .35], [.35, .35], [.35, 1], [-.35, 1], [-.35, .35], [-1, .35], [-1, -.35], [-.35, -.35]];
    const shapes = {
      s: [[-.88, -.88], [.88, -.88], [.88, .88], [-.88, .88]],
      "^": [[0, -1.1], [1.05, .8], [-1.05, .8]],
      v: [[0, 1.1], [1.05, -.8], [-1.05, -.8]],
      D: [[0, -1.15], [1.15, 0], [0, 1.15], [-1.15, 0]],
      P: cross,
      X: cross.map(([dx, dy]) => [(dx - dy) * .71, (dx + dy) * .71]),
      "*": [...Array(10).keys()].map((i) => {
        const length = i % 2 ? .5 : 1.2;
        return [length * Math.sin(i * Math.PI / 5), -length * Math.cos(i * Math.PI / 5)];
      }),
    };
    function drawMark(pen, [colour, shape], x, y, r) {
      pen.fillStyle = colour;
      pen.beginPath();
      if (shapes[shape]) shapes[shape].forEach(([dx, dy], i) => pen[i ? "lineTo" : "moveTo"](x + dx * r, y + dy * r));
      else pen.arc(x, y, r, 0, 2 * Math.PI);
      pen.fill();
    }

    function prepared(target, width, height) {
      const ratio = devicePixelRatio || 1;
      target.width = Math.round(width * ratio);
      target.height = Math.round(height * ratio);
      target.style.width = width + "px";
      target.style.height = height + "px";
      const pen = target.getContext("2d");
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      return pen;
    }

    function layOut(width, height) {
      const points = data.layouts[state.layout].points;
      const ends = (axis) => points.reduce(([low, high], p) => [Math.min(low, p[axis]), Math.max(high, p[axis])], [1, 0]);
      const [xs, ys] = [ends(0), ends(1)];
      const unit = Math.min((width - 40) / (xs[1] - xs[0] || 1), (height - 40) / (ys[1] - ys[0] || 1)); // one for both axes
      places = points.map((p) => [
        width / 2 + (p[0] - (xs[0] + xs[1]) / 2) * unit,
        height / 2 - (p[1] - (ys[0] + ys[1]) / 2) * unit,
      ]);
    }

    function paint() {
      canvas.style.width = canvas.style.height = ""; // as wide as the page gives it
      const [width, height] = [canvas.clientWidth, canvas.clientHeight];
      layOut(width, height);
      radius = places.length > 1500 ? 2.5 : places.length > 400 ? 3.5 : 5;
      const pen = prepared(base, width, height);
      pen.globalAlpha = .85;
      const looks = data.colourings[state.colouring].looks;
      let count = 0;
      places.forEach(([x, y], index) => {
        if (!visible(index)) return;
        drawMark(pen, looks[labelOf(index)], x, y, radius);
        count += 1;
      });
      root.dataset.points = String(count);
    }

    function draw() {
      if (!base.width || !base.height) return; // a hidden page has no size
      if (canvas.width !== base.width || canvas.height !== base.height) {
        canvas.width = base.width;
        canvas.height = base.height;
      }
      const pen = canvas.getContext("2d");
      pen.setTransform(1, 0, 0, 1, 0, 0);
      pen.clearRect(0, 0, canvas.width, canvas.height);
      pen.drawImage(base, 0, 0);
      const ratio = devicePixelRatio || 1;
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      pen.strokeStyle = getComputedStyle(root).getPropertyValue("--ink");
      const ring = (index, distance, width) => {
        pen.lineWidth = width;
        pen.beginPath();
        pen.arc(...places[index], radius + distance, 0, 2 * Math.PI);
        pen.stroke();
      };
      if (state.pinned >= 0) nearestOf(state.pinned).forEach(([index]) => visible(index) && ring(index, 3, 1));
      if (state.pinned >= 0 && visible(state.pinned)) ring(state.pinned, 5, 2);
      if (state.chosen >= 0) ring(state.chosen, 5, 2);
    }

    function choose(index, speak) {
      state.chosen = index;
      draw();
      card.hidden = index < 0;
      if (index < 0) return;
      showCard(index);
      if (speak) spoken.textContent = describe(index).join(", ") + ", " + data.ids[index];
    }

    function showCard(index) {
      drawThumb(find("map-thumb"), index, thumbSide);
      const [first, second] = describe(index);
      find("map-first").textContent = first;
      find("map-second").textContent = second || "";
      find("map-id").textContent = data.ids[index];
      const [x, y] = places[index];
      card.style.left = card.style.top = "0"; // measured in the corner, where the edge of the map does not squeeze it
      const left = Math.min(x + 14, canvas.clientWidth - card.offsetWidth - 4);
      const below = y + 14 + card.offsetHeight < canvas.clientHeight;
      card.style.left = Math.max(4, left) + "px";
      card.style.top = (below ? y + 14 : Math.max(4, y - 14 - card.offsetHeight)) + "px";
    }

    function nearestOf(index) {
      const layout = data.layouts[state.layout];
      return layout.near ? layout.near[index].map((other, rank) => [other, layout.cosines[index][rank] / 1000]) : [];
    }

    // Below the map: the nearest images of one image by the embedding itself; each can be clicked in turn.
    function pin(index, focus) {
      const found = index < 0 ? [] : nearestOf(index);
      state.pinned = found.length ? index : -1;
      find("map-near").hidden = !found.length;
      if (!found.length) return draw();
      find("map-near-title").textContent = `Nearest to ${data.ids[index]} (${describe(index)[0]})`;
      const tiles = [[index, null], ...found].map(([other, cosine]) => {
        const tile = make("li", { className: "tile" });
        const button = make("button", { type: "button", title: data.ids[other] });
        const name = describe(other)[0];
        const words = cosine === null ? "query" : cosine.toFixed(2);
        button.setAttribute("aria-label", `${name}, ${data.ids[other]}, ${cosine === null ? "the image itself" : "cosine " + words}`);
        const thumb = document.createElement("canvas");
        drawThumb(thumb, other, 72);
        const frame = document.createElement("span");
        frame.append(thumb);
        button.append(frame, make("small", { textContent: name }), make("small", { textContent: words }));
        button.addEventListener("click", () => { pin(other, true); });
        if (labelOf(other) !== labelOf(index)) tile.classList.add("other");
        tile.append(button);
        return tile;
      });
      find("map-near-list").replaceChildren(...tiles);
      if (focus) tiles[0].firstChild.focus();
      return draw();
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
    const middle = () => nearest(canvas.clientWidth / 2, canvas.clientHeight / 2, 1e6);

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
      if (event.key === "Escape") { pin(-1, false); return choose(-1, false); }
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        pin(state.chosen, false);
        if (state.pinned >= 0) spoken.textContent = `${nearestOf(state.pinned).length} nearest shown below the map`;
        return undefined;
      }
      if (!ways[event.key]) return undefined;
      event.preventDefault();
      const start = state.chosen >= 0 && visible(state.chosen) ? state.chosen : -1;
      return choose(start < 0 ? middle() : neighbour(start, ...ways[event.key]), true);
    }

    function fillLegend() {
      const colouring = data.colourings[state.colouring];
      const counts = new Map();
      colouring.labels.forEach((label) => counts.set(label, (counts.get(label) || 0) + 1));
      const rows = [...counts.keys()].sort((a, b) => a - b).map((label) => {
        const row = document.createElement("label");
        const box = make("input", { type: "checkbox", checked: !state.hidden.has(label) });
        box.addEventListener("change", () => {
          if (box.checked) state.hidden.delete(label);
          else state.hidden.add(label);
          refresh();
        });
        const swatch = document.createElement("canvas");
        drawMark(prepared(swatch, 14, 14), colouring.looks[label], 7, 7, 5);
        row.append(box, swatch, make("span", { textContent: colouring.names[label] }), make("output", { textContent: counts.get(label) }));
        return row;
      });
      list.replaceChildren(...rows);
      find("map-find").hidden = rows.length <= manyClasses;
      find("map-find").value = "";
    }

    function findClass() {
      const wanted = find("map-find").value.trim().toLowerCase();
      for (const row of list.children) row.hidden = !row.querySelector("span").textContent.toLowerCase().includes(wanted);
    }

    function refresh() {
      paint();
      choose(state.chosen >= 0 && visible(state.chosen) ? state.chosen : -1, false);
    }

    function showAll(all) {
      state.hidden = new Set(all ? [] : data.colourings[state.colouring].labels);
      fillLegend();
      refresh();
    }

    layoutChoice.addEventListener("change", () => { state.layout = layoutChoice.selectedIndex; refresh(); pin(state.pinned, false); });
    colourChoice.addEventListener("change", () => { state.colouring = colourChoice.selectedIndex; showAll(true); pin(state.pinned, false); });
    find("map-all").addEventListener("click", () => showAll(true));
    find("map-none").addEventListener("click", () => showAll(false));
    find("map-find").addEventListener("input", findClass);
    canvas.addEventListener("pointermove", pointed);
    canvas.addEventListener("pointerdown", pointed);
    canvas.addEventListener("click", () => { if (state.chosen >= 0) pin(state.chosen, false); });
    canvas.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") choose(-1, false); });
    canvas.addEventListener("keydown", pressed);
    // Focused by the Tab key, the map shows an image at once; a click shows the one it hits.
    canvas.addEventListener("focus", () => { if (canvas.matches(":focus-visible") && state.chosen < 0) choose(middle(), true); });
    canvas.addEventListener("blur", () => choose(-1, false));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    root.addEventListener("themechange", draw);
    new ResizeObserver(() => refresh()).observe(canvas.parentElement);
    fillLegend();
    refresh();
    // #point=12 opens the page with that point chosen.
    const asked = /^#point=(\d+)$/.exec(location.hash);
    if (asked && Number(asked[1]) < places.length) { choose(Number(asked[1]), true); pin(Number(asked[1]), false); }
  }
})();
