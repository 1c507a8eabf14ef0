// One kind: all its images, the most typical first, doubtful ones at the end.

import { el, button, icon, count, printable } from "./dom.js";
import { get } from "./api.js";
import { Grid } from "./grid.js";
import { nameField, sureness } from "./kind_row.js";
import { askMerge, askSplit } from "./actions.js";
import { kindNamed, on, store } from "./store.js";
import { showImage } from "./lightbox.js";

const SECTIONS = [["typical", "Typical"], ["none", "In between"], ["borderline", "Borderline: almost as near to another kind"],
  ["outlier", "Outliers: far from all others of this kind"], ["junk", "Junk"]];
let now = null; // the kind shown
let grid = null; // shared by all kinds: its listeners live as long as the page

export function showKind(root, coarse, name) {
  if (now?.coarse === coarse && now.name === name) return;
  const kind = kindNamed(coarse, name);
  const back = el("a", { class: "button quiet", href: `#kinds/${encodeURIComponent(coarse)}` }, icon("back"), el("span", { text: coarse }));
  if (!kind) {
    now = null;
    root.replaceChildren(el("div", { class: "kind-head" }, back), el("p", { class: "empty", text: `There is no kind “${name}” in ${coarse}; it may have been renamed or merged.` }));
    return;
  }
  grid ??= new Grid({ label: "", onOpen: showImage });
  grid.set([]);
  grid.top();
  grid.node.setAttribute("aria-label", `Images of ${name}`);
  const title = nameField(coarse, kind, "", (field) => field.blur());
  const about = el("span", { class: "soft" });
  const sure = sureness(kind.confidence);
  const size = el("input", { type: "range", min: 64, max: 256, step: 16, value: grid.size, "aria-label": "Size of the images" });
  size.addEventListener("input", () => grid.resize(Number(size.value)));
  root.replaceChildren(el("div", { class: "kind-head" }, back, title.node, el("div", { class: "soft meta" }, about, sure.node),
    el("div", { class: "row push" }, size,
      button("Merge", { name: "merge" }, () => askMerge(coarse, now.name)), button("Split", { name: "split" }, () => askSplit(coarse, now.name)),
      el("a", { class: "button", href: `#map?coarse=${encodeURIComponent(coarse)}&kind=${encodeURIComponent(name)}` }, icon("map"), el("span", { text: "Map" })))),
  grid.node);
  now = { coarse, name, title, about, sure, members: "" };
  fill(now);
}

export function hideKind() {
  now = null;
}

async function fill(view) {
  const kind = kindNamed(view.coarse, view.name);
  if (!kind) return;
  view.title.update(kind);
  view.sure.update(kind.confidence);
  view.about.textContent = [count(kind.size, "image"), kind.confused_with ? `near ${printable(kind.confused_with)}` : ""].filter(Boolean).join(" · ");
  let images;
  try {
    ({ images } = await get("kind", { coarse: view.coarse, kind: view.name }));
  } catch {
    return; // the kind or the server is gone; other handlers report that
  }
  const members = JSON.stringify(images.map(({ id, role }) => [id, role]));
  if (now !== view || members === view.members) return grid.refresh();
  view.members = members;
  grid.set(SECTIONS.map(([role, text]) => {
    const ids = images.filter((image) => (image.role || "none") === role).map((image) => image.id);
    return { title: `${text} (${ids.length})`, ids };
  }));
}

/** After an edit, follow the kind shown: by its name, or to the kind that got most of its images. */
on("change", () => {
  if (!now) return;
  if (kindNamed(now.coarse, now.name)) return void fill(now);
  const votes = new Map();
  for (const id of grid.ids) {
    const place = store.labels.kind[id];
    votes.set(place, (votes.get(place) ?? 0) + 1);
  }
  const heir = store.kinds[[...votes].sort((a, b) => b[1] - a[1])[0]?.[0]];
  location.hash = heir ? `#kinds/${encodeURIComponent(heir.coarse)}/${encodeURIComponent(heir.name)}` : `#kinds/${encodeURIComponent(now.coarse)}`;
});
