// "These 40 images are probably Gala": offered where some kinds have names; accepted, looked at or turned down.

import { el, button, count, picture } from "./dom.js";
import { get } from "./api.js";
import { apply } from "./actions.js";
import { selection } from "./selection.js";
import { showImage } from "./lightbox.js";
import { store } from "./store.js";

const REFUSED = "maskcon-refused-suggestions"; // by kind, the images that were turned down; kept for this tab
const FACES = 10;

const refused = () => JSON.parse(sessionStorage.getItem(REFUSED) ?? "{}");
const keyOf = (item) => JSON.stringify([item.coarse, item.kind]);

function refuse(item) {
  const all = refused();
  all[keyOf(item)] = [...(all[keyOf(item)] ?? []), ...item.ids];
  sessionStorage.setItem(REFUSED, JSON.stringify(all));
}

/** Fill `box` with what the server suggests for a coarse class; asked again when the session has changed. */
export async function suggestionsFor(box, group) {
  const revision = store.state.revision;
  if (box.revision === revision) return;
  box.revision = revision;
  if (!group.kinds.some((kind) => kind.named)) return box.replaceChildren();
  let items;
  try {
    ({ items } = await get("suggestions", { coarse: group.name }));
  } catch {
    return; // no suggestion is no fault; the state of the connection is told elsewhere
  }
  if (box.revision !== revision) return; // overtaken
  const turnedDown = refused();
  const open = items.map((item) => ({ ...item, ids: item.ids.filter((id) => !(turnedDown[keyOf(item)] ?? []).includes(id)) }))
    .filter((item) => item.ids.length);
  box.replaceChildren(...open.map((item) => offer(box, item)));
}

function offer(box, item) {
  const node = el("div", { class: "offer", role: "group", "aria-label": `Suggestion for ${item.kind}` },
    el("p", {}, el("span", { text: item.ids.length === 1 ? "This image is probably " : `These ${count(item.ids.length, "image")} are probably ` }), el("strong", { text: item.kind })),
    el("div", { class: "strip small" }, ...item.ids.slice(0, FACES).map((id) => el("button", {
      type: "button", class: "plain face", "aria-label": `Show image ${id}`, on: { click: () => showImage(id, item.ids) },
    }, picture(id, { size: 64 })))),
    el("div", { class: "row" },
      button("Accept", { name: "check", kind: "primary" }, () => apply({ action: "move", ids: item.ids, to: item.kind })),
      button("Reject", { name: "close" }, () => { refuse(item); node.remove(); }),
      button("Select them", { kind: "quiet" }, () => selection.set(item.ids))));
  return node;
}
