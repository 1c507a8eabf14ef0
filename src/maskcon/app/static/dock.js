// The bar at the bottom: actions on the selected images.

import { el, button, count, thumbnail, printable } from "./dom.js";
import { facts } from "./store.js";
import { selection } from "./selection.js";
import { askMove, toggleJunk } from "./actions.js";
import { shortcut } from "./keys.js";
import { say } from "./notices.js";

const SHOWN = 6;

export function makeDock(root) {
  const faces = el("div", { class: "dock-faces", "aria-hidden": "true" });
  const title = el("strong");
  const where = el("span", { class: "soft" });
  const junk = button("Junk", { name: "junk", key: "J" }, () => toggleJunk(selection.ids));
  const searchBy = (sign) => {
    const { pos, neg } = Object.fromEntries(new URLSearchParams(location.hash.split("?")[1] ?? ""));
    const before = location.hash.startsWith("#search") ? { pos, neg } : {};
    const ids = selection.ids.slice(0, 50).join(",");
    const joined = { ...before, [sign]: [before[sign], ids].filter(Boolean).join(",") };
    const params = Object.entries(joined).filter(([, value]) => value).map(([key, value]) => `${key}=${value}`);
    selection.clear();
    location.hash = `#search?${params.join("&")}`;
  };
  const like = button("More like these", { name: "plus", key: "S" }, () => searchBy("pos"));
  const unlike = button("Not like these", { name: "minus" }, () => searchBy("neg"));
  const move = button("Move to …", { name: "move", kind: "primary", key: "M" }, () => askMove(selection.ids));
  root.append(faces, el("div", { class: "dock-what" }, title, where),
    el("div", { class: "dock-actions" }, move, junk, like, unlike,
      button("Clear selection", { name: "close", text: false, key: "Escape" }, () => selection.clear())));

  function update() {
    const { ids } = selection;
    root.hidden = !ids.length;
    document.body.classList.toggle("docked", ids.length > 0);
    if (!ids.length) return;
    faces.replaceChildren(...ids.slice(-SHOWN).map((id) => thumbnail(id, { size: 64, lazy: false })));
    title.textContent = `${ids.length.toLocaleString("en")} selected`;
    const classes = new Set(ids.map((id) => facts(id).coarse));
    where.textContent = classes.size === 1 ? printable([...classes][0]) : count(classes.size, "class");
    junk.lastChild.textContent = ids.every((id) => facts(id).role === "junk") ? "Not junk" : "Junk";
    unlike.hidden = !location.hash.startsWith("#search");
  }
  selection.onChange(update);
  addEventListener("hashchange", update);
  selection.onChange(() => say(selection.size ? `${count(selection.size, "image")} selected` : "Nothing selected"));

  const withSelection = (run) => () => (selection.size ? void run() : false);
  const scope = "kinds map search";
  shortcut(scope, ["m"], "Move to a kind", withSelection(() => askMove(selection.ids)));
  shortcut(scope, ["j"], "Junk, or not", withSelection(() => toggleJunk(selection.ids)));
  shortcut(scope, ["s"], "Search for more like these", withSelection(() => searchBy("pos")));
  shortcut(scope, ["Escape"], "Clear the selection", withSelection(() => selection.clear()));
}
