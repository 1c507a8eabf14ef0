// Edits: the questions before, the requests, and the messages after.

import { el, count, grouped } from "./dom.js";
import { edit, undo, redo, follow, facts, classNamed, store, on } from "./store.js";
import { chooseKind, openDialog } from "./dialogs.js";
import { selection } from "./selection.js";
import { say, toast } from "./notices.js";

/** Send an edit; the handler of "refused" shows refusals. Returns the answer, null if it was not saved. */
export const apply = (body) => edit(body).catch(() => null);

export const rename = (coarse, kind, to) => apply({ action: "rename", coarse, kind, to });
export const split = (coarse, kind, parts) => apply({ action: "split", coarse, kind, parts });
export const mergeInto = (coarse, kind, to) => apply({ action: "merge", coarse, kinds: [kind, to], to });

export async function askMerge(coarse, kind) {
  const to = await chooseKind({ title: `Merge “${kind}” with`, coarse, without: [kind] });
  if (to === null) return;
  await (classNamed(coarse).kinds.some((other) => other.name === to) ? mergeInto(coarse, kind, to) : rename(coarse, kind, to));
}

export function askSplit(coarse, kind) {
  const choose = async (parts) => { dialog.close(); await split(coarse, kind, parts); };
  const buttons = [2, 3].map((parts) => el("button", {
    type: "button", class: "button big", on: { click: () => choose(parts) },
  }, el("span", { text: `Into ${parts}` })));
  const dialog = openDialog(`Split “${kind}”`, el("div", { class: "dialog-body" },
    el("p", { class: "soft", text: "Its images are grouped by similarity." }), el("div", { class: "row" }, ...buttons)));
  buttons[0].focus();
}

/** Ask where images go, and move them. Images of several coarse classes: one class is chosen first. */
export async function askMove(ids) {
  const groups = grouped(ids, (id) => facts(id).coarse);
  const largest = [...groups].sort((a, b) => b[1].length - a[1].length)[0];
  if (!largest) return;
  const [coarse, own] = largest;
  const lead = groups.size === 1 ? null : el("p", {
    class: "note", text: `The selection holds ${groups.size} coarse classes. Only the ${count(own.length, "image")} of ${coarse} will be moved.`,
  });
  const to = await chooseKind({ title: `Move ${count(own.length, "image")} of ${coarse} to`, coarse, lead });
  if (to !== null && await apply({ action: "move", ids: own, to })) selection.remove(own);
}

/** Mark images as junk; if all of them are junk already, remove the mark. */
export async function toggleJunk(ids) {
  if (!ids.length) return;
  const marked = ids.every((id) => facts(id).role === "junk");
  if (await apply({ action: marked ? "restore" : "junk", ids })) selection.remove(ids);
}

const quietly = (step) => () => step().catch(() => {});
export const undoLast = quietly(undo);
export const redoLast = quietly(redo);
export const followAnswers = quietly(follow);

/** Show a message for every saved and every refused edit. */
export function tellEdits() {
  on("saved", ({ change, path }) => {
    const text = path === "undo" ? `Undone: ${change}` : sentence(change ?? "saved");
    toast(text, path === "undo" ? {} : { action: { label: "Undo", run: undoLast } });
    say(`${text}. Saved.`);
  });
  on("refused", (error) => toast(error.message, { kind: "bad" }));
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** Describe the state of saving. */
export function status() {
  if (!store.online) return { kind: "bad", text: store.waiting.length ? `Not saved: ${count(store.waiting.length, "edit")} waiting` : "No server" };
  if (store.waiting.length) return { kind: "busy", text: "Saving …" };
  if (!store.saved) return { kind: "", text: store.state?.can_undo ? "All edits saved" : "No edits yet" };
  return { kind: "good", text: `Saved ${store.saved.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })}` };
}
