// One kind in the overview: its name field, its typical and borderline images, its actions.

import { el, button, icon, thumbnail, count, printable } from "./dom.js";
import { askMerge, askSplit, mergeInto, rename } from "./actions.js";
import { kindNamed } from "./store.js";
import { showImage } from "./lightbox.js";

const DRAFTS = "maskcon-drafts"; // typed names that are not sent yet; they survive a reload

const drafts = {
  all: () => JSON.parse(sessionStorage.getItem(DRAFTS) ?? "{}"),
  key: (coarse, kind) => JSON.stringify([coarse, kind]),
  get: (coarse, kind) => drafts.all()[drafts.key(coarse, kind)] ?? null,
  set(coarse, kind, text) {
    const all = drafts.all();
    if (text === null) delete all[drafts.key(coarse, kind)];
    else all[drafts.key(coarse, kind)] = text;
    sessionStorage.setItem(DRAFTS, JSON.stringify(all));
  },
};

export const kindLink = (coarse, kind) => `#kinds/${encodeURIComponent(coarse)}/${encodeURIComponent(kind)}`;

/**
 * Make the field for the name of a kind: Enter saves and goes on, Escape discards the typed text.
 * @param {() => void} onDone called after Enter, with the field still in place
 */
export function nameField(coarse, kind, list, onDone) {
  const note = el("span", { class: "hint", role: "status" });
  const field = el("input", {
    class: "name", type: "text", autocomplete: "off", spellcheck: false, maxLength: 200, dir: "auto", list, "aria-label": `Name of ${kind.name} of ${coarse}`,
  });
  let current = kind;
  const settled = () => (current.named ? current.name : "");
  const hint = () => {
    const text = field.value.trim();
    const other = text !== current.name ? kindNamed(coarse, text) : null;
    note.textContent = other ? `Enter merges it with ${printable(other.name)} (${other.size})` : field.value !== settled() && text ? "Enter saves" : "";
  };
  field.addEventListener("input", () => { drafts.set(coarse, current.name, field.value); hint(); });
  field.addEventListener("focus", () => field.select());
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      const text = field.value.trim();
      const name = current.name;
      drafts.set(coarse, name, null);
      note.textContent = "";
      onDone(field);
      if (text && text !== name) rename(coarse, name, text);
      else field.value = settled();
    } else if (event.key === "Escape") {
      drafts.set(coarse, current.name, null);
      field.value = settled();
      hint();
      field.blur();
    }
  });
  const update = (newer) => {
    const draft = drafts.get(coarse, newer.name);
    current = newer;
    field.placeholder = newer.named ? newer.name : `${newer.name}: type a name`;
    field.setAttribute("aria-label", `Name of ${newer.name} of ${coarse}`);
    if (draft !== null) field.value = draft;
    else if (document.activeElement !== field) field.value = settled();
    hint();
  };
  update(kind);
  return { node: el("div", { class: "name-box" }, field, note), update, field };
}

export function sureness(value) {
  const bar = el("span", { class: "bar", "aria-hidden": "true" }, el("span"));
  const text = el("span");
  const node = el("span", { class: "sureness", title: "Confidence: 1 - distance to its centre / distance to the nearest other centre" }, bar, text);
  const update = (confidence) => {
    node.hidden = confidence === null;
    if (confidence === null) return;
    bar.firstChild.style.width = `${Math.round(100 * Math.min(1, confidence))}%`;
    text.textContent = `confidence ${confidence.toFixed(2)}`;
  };
  update(value);
  return { node, update };
}

/** Make a row for `kind`; the node's `update` follows the kind. */
export function kindRow(coarse, kind, list, onDone) {
  let current = kind;
  const name = nameField(coarse, kind, list, onDone);
  const size = el("span");
  const sure = sureness(kind.confidence);
  const near = el("span", { class: "near" });
  const strip = el("div", { class: "strip" });
  const link = el("a", { class: "button quiet" }, el("span", { text: "Open" }), icon("open"));
  const merge = button("Merge", { name: "merge", text: false, kind: "quiet" }, () => askMerge(coarse, current.name));
  const divide = button("Split", { name: "split", text: false, kind: "quiet" }, () => askSplit(coarse, current.name));
  const onMap = el("a", { class: "button quiet bare", "aria-label": "Show on the map", title: "Show on the map" }, icon("map"));
  const grip = el("span", { class: "grip", "aria-hidden": "true", title: "Drag onto another kind to merge" }, icon("grip"));
  const row = el("article", { class: "kind", draggable: false }, grip, name.node,
    el("div", { class: "soft meta" }, size, sure.node, near), el("div", { class: "kind-actions" }, merge, divide, onMap, link), strip);

  grip.addEventListener("pointerdown", () => { row.draggable = true; }); // only the grip starts a drag, text stays selectable
  row.addEventListener("dragend", () => { row.draggable = false; row.classList.remove("dragged"); });
  row.addEventListener("dragstart", (event) => {
    event.dataTransfer.setData("application/x-maskcon-kind", JSON.stringify([coarse, current.name]));
    event.dataTransfer.effectAllowed = "move";
    row.classList.add("dragged");
  });
  const ours = (event) => event.dataTransfer.types.includes("application/x-maskcon-kind") && !row.classList.contains("dragged");
  row.addEventListener("dragover", (event) => {
    if (!ours(event)) return;
    event.preventDefault();
    row.classList.add("target");
  });
  row.addEventListener("dragleave", () => row.classList.remove("target"));
  row.addEventListener("drop", (event) => {
    row.classList.remove("target");
    if (!ours(event)) return;
    event.preventDefault();
    const [from, other] = JSON.parse(event.dataTransfer.getData("application/x-maskcon-kind"));
    if (from === coarse && other !== current.name) mergeInto(coarse, other, current.name);
  });

  let shown = "";
  row.update = (newer) => {
    current = newer;
    name.update(newer);
    size.textContent = count(newer.size, "image");
    sure.update(newer.confidence);
    near.textContent = newer.confused_with ? `near ${printable(newer.confused_with)}` : "";
    link.href = kindLink(coarse, newer.name);
    link.setAttribute("aria-label", `Open ${newer.name}`);
    merge.setAttribute("aria-label", `Merge ${newer.name} with another kind`);
    divide.setAttribute("aria-label", `Split ${newer.name}`);
    onMap.href = `#map?coarse=${encodeURIComponent(coarse)}&kind=${encodeURIComponent(newer.name)}`;
    row.setAttribute("aria-label", `${newer.name}, ${count(newer.size, "image")}`);
    row.classList.toggle("named", newer.named);
    const now = JSON.stringify([newer.typical, newer.borderline]);
    if (now === shown) return;
    shown = now;
    const all = [...newer.typical, ...newer.borderline];
    const face = (id, role) => el("button", {
      type: "button", class: `plain face ${role}`, "aria-label": `${role === "edge" ? "Borderline" : "Typical"} image ${id} of ${newer.name}`,
      on: { click: () => showImage(id, all) },
    }, thumbnail(id));
    strip.replaceChildren(...newer.typical.map((id) => face(id, "typical")),
      ...newer.borderline.map((id) => face(id, "edge")));
  };
  row.update(kind);
  return row;
}
