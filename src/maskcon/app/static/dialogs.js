// Dialogs: a frame for all of them, the choice of a kind, the list of keys.

import { el, icon, button, thumbnail, count } from "./dom.js";
import { listed, shown } from "./keys.js";
import { classNamed } from "./store.js";

let serial = 0;

/**
 * Open a dialog; the browser keeps the focus inside and gives it back.
 * @returns {{node: HTMLDialogElement, close: () => void}}
 */
export function openDialog(title, body, { scope = "", wide = false, onClose = null } = {}) {
  const id = `dialog${(serial += 1)}`;
  const close = () => node.close();
  const node = el("dialog", { class: wide ? "wide" : "", data: { scope }, "aria-labelledby": id },
    el("header", {}, el("h2", { id, text: title }), button("Close", { name: "close", text: false, kind: "quiet" }, close)), body);
  node.addEventListener("close", () => { node.remove(); onClose?.(); });
  node.addEventListener("pointerdown", (event) => { if (event.target === node) close(); });
  document.body.append(node);
  node.showModal();
  return { node, close };
}

/**
 * Ask for a kind of a coarse class, an existing one or a new name.
 * @param {{title: string, coarse: string, without?: string[], lead?: Node|null}} options
 * @returns {Promise<string|null>} null: cancelled
 */
export function chooseKind({ title, coarse, without = [], lead = null }) {
  return new Promise((resolve) => {
    const list = `choices${(serial += 1)}`;
    let active = 0;
    let options = [];
    let result = null;
    const field = el("input", {
      class: "field", type: "text", placeholder: "Type a name, or choose", autocomplete: "off", spellcheck: false, role: "combobox", dir: "auto",
      "aria-expanded": "true", "aria-controls": list, "aria-autocomplete": "list", "aria-label": "Name of the kind",
    });
    const box = el("div", { class: "choices", role: "listbox", id: list, "aria-label": `Kinds of ${coarse}` });
    const finish = (name) => { result = name; dialog.close(); };

    function fill() {
      const text = field.value.trim();
      const known = classNamed(coarse)?.kinds.filter((kind) => !without.includes(kind.name)) ?? [];
      options = known.filter((kind) => kind.name.toLowerCase().includes(text.toLowerCase()))
        .map((kind) => ({ name: kind.name, kind }));
      const exact = classNamed(coarse)?.kinds.some((kind) => kind.name === text);
      if (text && !exact) options.push({ name: text, kind: null });
      active = Math.min(active, Math.max(0, options.length - 1));
      box.replaceChildren(...options.map(({ name, kind }, place) => el("div", {
        class: "choice", role: "option", id: `${list}-${place}`, "aria-selected": String(place === active), on: { click: () => finish(name) },
      },
      ...(kind ? kind.typical.slice(0, 3).map((image) => thumbnail(image, { size: 64 })) : [icon("plus")]),
      el("span", { class: "choice-name", text: kind ? name : `New kind “${name}”` }),
      el("span", { class: "soft", text: kind ? count(kind.size, "image") : "" }))));
      if (options.length) field.setAttribute("aria-activedescendant", `${list}-${active}`);
      else field.removeAttribute("aria-activedescendant");
      box.children[active]?.scrollIntoView({ block: "nearest" });
    }

    field.addEventListener("input", () => { active = 0; fill(); });
    field.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step) {
        active = (active + step + options.length) % Math.max(1, options.length);
        fill();
      } else if (event.key === "Enter") {
        if (options[active]) finish(options[active].name);
      } else return;
      event.preventDefault();
    });
    const dialog = openDialog(title, el("div", { class: "dialog-body" }, lead, field, box), { onClose: () => resolve(result) });
    fill();
    field.focus();
  });
}

const SCOPES = {
  everywhere: "Everywhere", selected: "Selected images", kinds: "Kinds", map: "Map", search: "Search", check: "Check", ask: "Ask", lightbox: "One image",
};

/** List every key. */
export function showKeys() {
  const groups = Object.entries(SCOPES).map(([scope, title]) => {
    const rows = listed().filter((entry) => entry.group === scope);
    return rows.length ? el("section", {}, el("h3", { text: title }), el("dl", { class: "keys" },
      ...rows.map((entry) => el("div", {}, el("dt", {}, ...entry.keys.map((key) => el("kbd", { text: shown(key) }))),
        el("dd", { text: entry.label }))))) : null;
  });
  const grids = el("section", {}, el("h3", { text: "In a grid of images" }), el("dl", { class: "keys" },
    ...[["← ↑ ↓ →", "Go to an image"], ["Enter", "Open it"], ["Space", "Select it"], ["Shift ←", "Select a range"],
      ["Ctrl A", "Select all"]].map(([key, label]) => el("div", {}, el("dt", {}, el("kbd", { text: key })), el("dd", { text: label })))));
  openDialog("Keys", el("div", { class: "dialog-body key-groups" }, ...groups, grids), { wide: true });
}
