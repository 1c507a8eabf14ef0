// Keyboard shortcuts: registered by the views, listed on `?`.

const shortcuts = []; // {scopes, group, keys, label, handler}
let view = "";
let pending = ""; // first key of a sequence such as "g m"
let timer = 0;

export const setScope = (name) => { view = name; };

/**
 * Register a shortcut.
 * @param {string} scope names of views with spaces between them, or "everywhere"
 * @param {string[]} keys alternatives such as "j", "Ctrl+z", "g m", "Shift+ArrowUp"
 * @param {string} label what it does, for the list; empty: not listed
 * @param {(event: KeyboardEvent, key: string) => boolean|void} handler returns false if it did not handle the key
 */
export function shortcut(scope, keys, label, handler) {
  const scopes = scope.split(" ");
  shortcuts.push({ scopes, group: scopes.length > 1 ? "selected" : scope, keys, label, handler });
}

export const listed = () => shortcuts.filter((entry) => entry.label);

const SHOWN = { ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", Escape: "Esc", " ": "Space" };
const one = (key) => SHOWN[key] ?? (key.length === 1 ? key.toUpperCase() : key);

/** Name keys as they are printed on keyboards: "Ctrl+z" is Ctrl Z, "g m" is G then M. */
export const shown = (keys) => (keys.length === 1 ? one(keys)
  : keys.split("+").map((part) => part.split(" ").map(one).join(" then ")).join(" "));

function nameOf(event) {
  const parts = [];
  if (event.ctrlKey || event.metaKey) parts.push("Ctrl");
  if (event.altKey) parts.push("Alt");
  if (event.shiftKey && (event.key.length > 1 || parts.length)) parts.push("Shift");
  parts.push(event.key.length === 1 ? event.key.toLowerCase() : event.key);
  return parts.join("+");
}

const typing = (target) => target.closest?.("input:not([type=checkbox],[type=radio],[type=range]), textarea, select, [contenteditable]");

addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.isComposing) return;
  const name = nameOf(event);
  const modified = event.ctrlKey || event.metaKey;
  if (typing(event.target)) return; // Ctrl+Z too belongs to the field
  const dialog = event.target.closest?.("dialog");
  const active = (entry) => entry.scopes.some((scope) => (dialog ? scope === dialog.dataset.scope : scope === view || scope === "everywhere"));
  const sequence = pending ? `${pending} ${name}` : "";
  for (const entry of shortcuts) {
    if (!active(entry)) continue;
    const key = entry.keys.find((candidate) => candidate === sequence || (!sequence && candidate === name));
    if (key && entry.handler(event, key) !== false) {
      event.preventDefault();
      pending = "";
      return;
    }
  }
  clearTimeout(timer);
  pending = !modified && shortcuts.some((entry) => active(entry) && entry.keys.some((key) => key.startsWith(`${name} `))) ? name : "";
  timer = setTimeout(() => { pending = ""; }, 1200);
});
