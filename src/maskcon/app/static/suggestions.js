// "These 40 images are probably Gala": suggestions to accept, reject or look at, once some kinds have names.

import { el, button, count, thumbnail } from "./dom.js";
import { get } from "./api.js";
import { apply } from "./actions.js";
import { selection } from "./selection.js";
import { showImage } from "./lightbox.js";
import { store } from "./store.js";

const FACES = 10;

/** Fill `box` with the server's suggestions for a coarse class, anew for each revision. */
export async function suggestionsFor(box, group) {
  const revision = store.state.revision;
  if (box.revision === revision) return;
  box.revision = revision;
  if (!group.kinds.some((kind) => kind.named)) return box.replaceChildren();
  let items;
  try {
    ({ items } = await get("suggestions", { coarse: group.name }));
  } catch {
    return; // suggestions can be missing; other handlers report a lost connection
  }
  if (box.revision !== revision) return; // overtaken
  box.replaceChildren(...items.map(offer));
}

function offer(item) {
  return el("div", { class: "offer", role: "group", "aria-label": `Suggestion for ${item.kind}` },
    el("p", {}, el("span", { text: item.ids.length === 1 ? "This image is probably " : `These ${count(item.ids.length, "image")} are probably ` }), el("strong", { text: item.kind })),
    el("div", { class: "strip small" }, ...item.ids.slice(0, FACES).map((id) => el("button", {
      type: "button", class: "plain face", "aria-label": `Show image ${id}`, on: { click: () => showImage(id, item.ids) },
    }, thumbnail(id, { size: 64 })))),
    el("div", { class: "row" },
      button("Accept", { name: "check", kind: "primary" }, () => apply({ action: "move", ids: item.ids, to: item.kind })),
      button("Reject", { name: "close" }, () => apply({ action: "reject", ids: item.ids, kind: item.kind })),
      button("Select them", { kind: "quiet" }, () => selection.set(item.ids))));
}
