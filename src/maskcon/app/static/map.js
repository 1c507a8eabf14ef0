// The view "Map": every image as a point; colours, thumbnails when near, selection.

import { el, button, count, grouped, thumbnail, printable } from "./dom.js";
import { get, read } from "./api.js";
import { facts, on, store } from "./store.js";
import { Grid } from "./grid.js";
import { MapView } from "./map_view.js";
import { handle, pointsInside, rectangle } from "./map_tools.js";
import { colourPoints, Legend } from "./map_colours.js";
import { FACE, Overlay } from "./map_overlay.js";
import { Plot } from "./plot.js";
import { selection } from "./selection.js";
import { showImage } from "./lightbox.js";
import { shortcut } from "./keys.js";
import { say } from "./notices.js";

const TOOLS = { pan: ["Pan", "V"], rect: ["Rectangle", "R"], lasso: ["Lasso", "L"] };
const NEAR = 14; // pixels: how close the pointer must be to a point
const STEP = 80; // pixels per arrow key
const POLL_MS = 1000;

export function makeMap(root) {
  const outline = document.createElementNS("http://www.w3.org/2000/svg", "polygon");
  const drawing = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  drawing.setAttribute("class", "outline");
  drawing.setAttribute("aria-hidden", "true");
  drawing.append(outline);
  const frame = el("div", { class: "frame", "aria-hidden": "true" });
  const card = el("div", { class: "card", hidden: true });
  const note = el("p", { class: "map-note", role: "status" });
  const stage = el("div", {
    class: "stage", tabIndex: 0, role: "application",
    "aria-label": "Map of the images. Arrow keys move, plus and minus zoom, Enter selects the images inside the frame.",
  }, drawing, frame, card, note);
  let places = new Float32Array(0);
  let tool = "pan";
  let loaded = false;
  let wanted = null; // class and kind in the address
  let frameAsked = false;
  let drifting = false;
  const view = new MapView(redraw);
  const plot = new Plot(view);
  const legend = new Legend(() => recolour());
  const overlay = new Overlay(view, legend);
  stage.prepend(plot.canvas, overlay.node);

  const tools = el("div", { class: "segmented", role: "group", "aria-label": "Tool" }, ...Object.entries(TOOLS).map(([name, [label, key]]) =>
    button(label, { name, text: false, key, data: { tool: name } }, () => take(name))));
  const zooms = el("div", { class: "segmented", role: "group", "aria-label": "Zoom" },
    button("Zoom in", { name: "plus", text: false, key: "+" }, () => view.zoomBy(1.6)),
    button("Zoom out", { name: "minus", text: false, key: "-" }, () => view.zoomBy(1 / 1.6)),
    button("Show all", { name: "fit", text: false, key: "0" }, () => view.reset()));
  const panelTitle = el("h2");
  const parts = el("div", { class: "parts" });
  const grid = new Grid({ label: "Selected images", size: 84, onOpen: showImage });
  const panel = el("aside", { class: "panel", "aria-label": "Selected images", hidden: true }, el("header", {}, panelTitle), parts, grid.node);
  stage.append(el("div", { class: "map-tools" }, tools, zooms));
  root.append(legend.node, stage, panel);

  function take(name) {
    tool = name;
    stage.dataset.tool = name;
    for (const node of tools.children) node.setAttribute("aria-pressed", String(node.dataset.tool === name));
  }
  take("pan");

  function redraw() {
    if (frameAsked) return;
    frameAsked = true;
    requestAnimationFrame(() => {
      frameAsked = false;
      plot.update();
      root.dataset.frames = String(Number(root.dataset.frames ?? 0) + 1); // read by the benchmark
      overlay.follow();
      if (!drifting) overlay.settle();
    });
  }

  function recolour() {
    if (!store.labels || !places.length) return;
    plot.setColours(colourPoints(legend, store, selection));
    overlay.relabel();
    redraw();
  }

  function nearest(x, y) {
    const [px, py] = view.at(x, y);
    let best = -1;
    let least = ((overlay.near ? FACE / 2 : NEAR) / view.scale) ** 2;
    for (let i = 0; i < places.length / 2; i += 1) {
      const away = (places[2 * i] - px) ** 2 + (places[2 * i + 1] - py) ** 2;
      if (away < least && legend.allows(i)) {
        least = away;
        best = i;
      }
    }
    return best;
  }

  let shownCard = -1;
  function hover(x, y) {
    const id = nearest(x, y);
    stage.classList.toggle("over", id >= 0);
    card.hidden = id < 0;
    if (id < 0) { shownCard = -1; return; }
    if (id !== shownCard) {
      shownCard = id;
      const { kind, coarse, confidence } = facts(id);
      card.replaceChildren(thumbnail(id, { size: 256, lazy: false }), el("strong", { text: kind ?? "no kind" }),
        el("span", { class: "soft", text: `${coarse}${confidence === null ? "" : ` · ${confidence.toFixed(2)}`}` }));
    }
    const left = x + 190 > view.width ? x - 184 : x + 16;
    card.style.transform = `translate(${left}px, ${Math.min(y + 12, view.height - 230)}px)`;
  }

  function select(ids, event) {
    if (event?.ctrlKey || event?.metaKey) selection.add(ids);
    else selection.set(ids);
    say(`${count(ids.length, "image")} selected`);
  }

  handle(stage, outline, {
    view, tool: () => tool, hover, leave() { card.hidden = true; },
    click(x, y, event) {
      const id = nearest(x, y);
      if (id < 0) return event.ctrlKey || event.metaKey || selection.clear();
      if (event.ctrlKey || event.metaKey || selection.size) return selection.toggle(id);
      return showImage(id, [id]);
    },
    select: (polygon, event) => select(pointsInside(places, polygon, legend.allows), event),
    moving(on) {
      drifting = on;
      if (on) card.hidden = true;
      else overlay.settle();
    },
  });

  function fillPanel() {
    panel.hidden = !selection.size;
    if (!root.hidden && selection.size) {
      const { ids } = selection;
      panelTitle.textContent = count(ids.length, "image");
      parts.replaceChildren(...[...grouped(ids, nameOf)].sort((a, b) => b[1].length - a[1].length).slice(0, 6).map(([name, own]) => el("button", {
        type: "button", class: "chip", title: "Keep only these selected", on: { click: () => selection.set(own) },
      }, el("span", { text: name }), el("span", { class: "soft", text: String(own.length) }))));
      grid.set([{ ids }]);
    }
    recolour();
  }
  selection.onChange(fillPanel);
  on("change", () => { legend.fill(); fillPanel(); });
  addEventListener("themechange", () => { legend.fill(); recolour(); });

  /** Show the class or kind in the address, once there are points. */
  function goTo() {
    if (!wanted || !places.length) return;
    const { coarse, kind } = wanted;
    wanted = null;
    legend.focus(coarse, kind);
    view.fit(places, [...Array(places.length / 2).keys()].filter((i) => legend.allows(i) && (!kind || facts(i).kind === kind)));
  }

  /** Fetch the map; a first, plain one is replaced when t-SNE is ready. */
  async function load() {
    note.textContent = "Loading the map …";
    loaded = true;
    try {
      for (;;) {
        const { bytes, headers } = await read("map");
        places = new Float32Array(bytes).map((value, i) => (i % 2 ? -value : value)); // y grows downwards on screen
        plot.setPlaces(places);
        overlay.setPlaces(places);
        recolour();
        goTo();
        note.textContent = "";
        if (headers.get("X-Map") !== "pca") return;
        for (let left = true; left;) {
          await new Promise((resolve) => { setTimeout(resolve, POLL_MS); });
          const { done, total } = await get("map/progress");
          left = done < total;
          note.textContent = left ? `First map. Computing a better one: ${Math.round((100 * done) / Math.max(1, total))} %` : "";
        }
      }
    } catch (error) {
      loaded = false; // the next visit tries again
      note.textContent = printable(error.message);
    }
  }

  new ResizeObserver(() => {
    const { clientWidth, clientHeight } = stage;
    if (!clientWidth) return;
    [view.width, view.height] = [clientWidth, clientHeight];
    card.hidden = true;
    plot.resize();
    redraw();
  }).observe(stage);

  for (const [name, [label, key]] of Object.entries(TOOLS)) shortcut("map", [key.toLowerCase()], `Tool: ${label.toLowerCase()}`, () => take(name));
  const pan = { ArrowLeft: [STEP, 0], ArrowRight: [-STEP, 0], ArrowUp: [0, STEP], ArrowDown: [0, -STEP] };
  shortcut("map", Object.keys(pan), "Move the map", (event, key) => (stage.contains(event.target) || event.target === document.body ? view.pan(...pan[key]) : false));
  shortcut("map", ["+", "="], "Zoom in", () => view.zoomBy(1.6));
  shortcut("map", ["-"], "Zoom out", () => view.zoomBy(1 / 1.6));
  shortcut("map", ["0"], "Show all", () => view.reset());
  shortcut("map", ["Enter"], "Select the images inside the frame in the middle", (event) => {
    if (event.target !== stage) return false;
    const polygon = rectangle(view.at(view.width * 0.3, view.height * 0.3), view.at(view.width * 0.7, view.height * 0.7));
    return select(pointsInside(places, polygon, legend.allows), event);
  });

  return {
    title: "Map",
    async show(_, params) {
      if (!store.state?.has_map) {
        note.textContent = "This session has no embeddings, so there is no map.";
        return;
      }
      legend.fill();
      if (!loaded) load();
      fillPanel();
      wanted = params.get("coarse") ? { coarse: params.get("coarse"), kind: params.get("kind") } : null;
      goTo();
    },
  };
}

const nameOf = (id) => [facts(id).coarse, facts(id).kind].filter(Boolean).join(" / ");
