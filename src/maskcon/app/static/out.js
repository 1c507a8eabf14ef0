// The dialog "Export": kinds.csv, contact sheet, folders, and the command that trains with the names.

import { el, button, count } from "./dom.js";
import { post } from "./api.js";
import { openDialog } from "./dialogs.js";
import { store } from "./store.js";
import { say } from "./notices.js";

function copyable(text) {
  const code = el("code", { text });
  const copy = button("Copy", { name: "copy" }, async () => {
    try {
      await navigator.clipboard.writeText(text);
      copy.lastChild.textContent = "Copied";
    } catch { // no clipboard without a secure context
      getSelection().selectAllChildren(code);
      copy.lastChild.textContent = "Selected: press Ctrl C";
    }
    say(copy.lastChild.textContent);
  });
  return el("div", { class: "command" }, el("pre", { tabIndex: 0 }, code), copy);
}

/** Folders are written by the server, beside the run. */
function folders() {
  const links = el("input", { type: "checkbox" });
  const message = el("p", { class: "soft", role: "status" });
  const go = button("Write", { name: "out" }, async () => {
    go.disabled = true;
    message.textContent = "Writing …";
    try {
      const { path, images } = await post("export", { links: links.checked });
      message.textContent = `${count(images, "image")} in ${path}`;
    } catch (error) {
      message.textContent = error.message;
    }
    go.disabled = false;
  });
  return el("section", { class: "way" }, el("div", {}, el("h3", { text: "Folders" }),
    el("p", { class: "soft", text: "One folder per class, with one folder per kind. Hugging Face datasets reads it as an imagefolder." }), message),
  el("div", { class: "row" }, el("label", { class: "check" }, links, el("span", { text: "links, not copies" })), go));
}

const download = (title, text, href, name) => el("section", { class: "way" },
  el("div", {}, el("h3", { text: title }), el("p", { class: "soft", text })),
  el("a", { class: "button", href, download: name }, el("span", { text: "Download" })));

export function showOut() {
  openDialog("Export", el("div", { class: "dialog-body ways" },
    el("section", { class: "way column" }, el("h3", { text: "Train with these names" }),
      ...(store.state.command
        ? [el("p", { class: "soft", text: "Images with the same name attract each other; images with different names never do." }), copyable(store.state.command)]
        : [el("p", { class: "soft", text: "Training needs coarse labels, in a folder, manifest or dataset that can be opened again; these images have none." })])),
    download("kinds.csv", "One line per image: path, class, kind, confidence, role.", "/api/kinds.csv", "kinds.csv"),
    download("Contact sheet", "One HTML page with every kind.", "/api/sheet", "contact-sheet.html"),
    folders()), { wide: true });
}
