// Messages: toasts, and a live region for screen readers.

import { el, button } from "./dom.js";

const TOAST_MS = 6000;
const region = () => document.getElementById("live");
const toasts = () => document.getElementById("toasts");

/** Announce a text to screen readers. */
export function say(text) {
  const live = region();
  live.textContent = "";
  requestAnimationFrame(() => { live.textContent = text; }); // emptied first, so that the same text is announced again
}

/**
 * Show a short message.
 * @param {string} text
 * @param {{kind?: string, action?: {label: string, run: () => void}}} options kind: "" or "bad"
 */
export function toast(text, { kind = "", action = null } = {}) {
  const close = () => node.remove();
  const node = el("div", { class: `toast ${kind}`, role: kind === "bad" ? "alert" : "status" }, el("span", { text }));
  if (action) node.append(button(action.label, { kind: "quiet" }, () => { close(); action.run(); }));
  node.append(button("Close", { name: "close", text: false, kind: "quiet" }, close));
  while (toasts().children.length > 2) toasts().firstElementChild.remove();
  toasts().append(node);
  let timer = setTimeout(close, TOAST_MS);
  node.addEventListener("pointerenter", () => clearTimeout(timer));
  node.addEventListener("focusin", () => clearTimeout(timer));
  node.addEventListener("pointerleave", () => { timer = setTimeout(close, TOAST_MS); });
}
