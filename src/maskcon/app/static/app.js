// The frame: views by #hash, the bar at the top, theme and general shortcuts.

import { el, button, printable } from "./dom.js";
import { makeAsk } from "./ask.js";
import { makeCheck } from "./check.js";
import { makeDock } from "./dock.js";
import { makeKinds } from "./kinds.js";
import { makeMap } from "./map.js";
import { makeSearch } from "./search.js";
import { redoLast, status, tellEdits, undoLast } from "./actions.js";
import { setScope, shortcut } from "./keys.js";
import { showKeys } from "./dialogs.js";
import { showOut } from "./out.js";
import { on, start, store } from "./store.js";

const byId = (id) => document.getElementById(id);
const THEMES = ["auto", "light", "dark"];
const MAKERS = { kinds: makeKinds, map: makeMap, search: makeSearch, check: makeCheck, ask: makeAsk };
const views = {};

function theme() {
  const kept = localStorage.getItem("maskcon-theme");
  let current = THEMES.includes(kept) ? kept : "auto";
  const node = button("Theme", { name: current, text: false, kind: "quiet" }, () => wear(THEMES[(THEMES.indexOf(current) + 1) % THEMES.length]));
  function wear(value) {
    current = value;
    if (value === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = value;
    localStorage.setItem("maskcon-theme", value);
    node.replaceChildren(button("", { name: value }).firstChild);
    node.setAttribute("aria-label", `Theme: ${value}`);
    node.title = `Theme: ${value}`;
    dispatchEvent(new Event("themechange"));
  }
  wear(current);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("themechange")));
  return node;
}

function bar() {
  const undo = button("Undo", { name: "undo", text: false, kind: "quiet", key: "Control+Z" }, undoLast);
  const redo = button("Redo", { name: "redo", text: false, kind: "quiet", key: "Control+Shift+Z" }, redoLast);
  byId("tools").append(undo, redo, button("Export", { name: "out", kind: "take", key: "E" }, showOut), theme(),
    button("Keys", { name: "help", text: false, kind: "quiet", key: "?" }, showKeys));
  const update = () => {
    const { kind, text } = status();
    byId("status").className = `status ${kind}`;
    byId("status").textContent = text;
    const problem = store.problem || store.state?.problem || "";
    byId("problem").hidden = !problem;
    byId("problem").textContent = printable(problem);
    undo.disabled = !store.state?.can_undo;
    redo.disabled = !store.state?.can_redo;
    if (store.state?.last_edit) undo.title = printable(`Undo: ${store.state.last_edit} (Ctrl Z)`);
  };
  on("status", update);
  on("change", update);
  update();
}

/** Show the view that the address names: #VIEW/PART/PART?KEY=VALUE. */
function route() {
  const [path, query = ""] = location.hash.slice(1).split("?");
  const [first, ...parts] = path.split("/").map(decode);
  const name = first in MAKERS ? first : "kinds";
  for (const key of Object.keys(MAKERS)) {
    byId(key).hidden = key !== name;
    const link = byId(`to-${key}`);
    if (key === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  setScope(name);
  views[name] ??= MAKERS[name](byId(name));
  document.title = printable(`${views[name].title} · ${store.state?.run ?? "MaskCon"}`);
  views[name].show(parts, new URLSearchParams(query));
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch { // an address typed by hand
    return part;
  }
}

function keys() {
  for (const [key, name] of [["k", "kinds"], ["m", "map"], ["s", "search"], ["c", "check"], ["a", "ask"]]) {
    shortcut("everywhere", [`g ${key}`], `Go to ${name}`, () => { location.hash = `#${name}`; });
  }
  shortcut("everywhere", ["Ctrl+z", "u"], "Undo", undoLast);
  shortcut("everywhere", ["Ctrl+Shift+z", "Ctrl+y"], "Redo", redoLast);
  shortcut("everywhere", ["e"], "Export", showOut);
  shortcut("everywhere", ["?"], "Show the keys", showKeys);
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names the view
  byId("main").focus();
});
tellEdits();
bar();
keys();
makeDock(byId("dock"));
await start();
let opened = false;
function open() {
  if (opened || !store.state) return;
  opened = true;
  byId("loading").remove();
  byId("run").textContent = printable(store.state.run);
  byId("run").title = printable(store.state.source);
  views.search = makeSearch(byId("search")); // images may be dropped on any view
  addEventListener("hashchange", route);
  route();
  document.documentElement.dataset.ready = "true";
}
open();
on("change", open);
if (!store.state) byId("loading").replaceChildren(el("p", { text: store.problem }));
