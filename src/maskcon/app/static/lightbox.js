// One large image: its facts, similar images, its actions.

import { el, button, full, thumbnail, printable } from "./dom.js";
import { get, post } from "./api.js";
import { openDialog } from "./dialogs.js";
import { facts, describe, on } from "./store.js";
import { selection } from "./selection.js";
import { askMove, toggleJunk } from "./actions.js";
import { shortcut } from "./keys.js";

const LIKE = 8;
let open = null;

/** Show image `id`; the arrow keys go through `ids`. */
export function showImage(id, ids = [id]) {
  if (open) return open.show(id, ids);
  const large = el("img", { class: "large", alt: "" });
  const path = el("p", { class: "path" });
  const known = el("dl", { class: "facts" });
  const like = el("div", { class: "like" });
  let current = id;
  let among = ids;
  let serial = 0;

  const step = (by) => {
    const place = among.indexOf(current) + by;
    if (among[place] !== undefined) show(among[place], among);
  };
  const pick = button("Select", { name: "check", key: "X" }, () => { selection.toggle(current); fill(); });
  const junk = button("Junk", { name: "junk", key: "J" }, () => toggleJunk([current]));
  const previous = button("Previous image", { name: "back", text: false, key: "ArrowLeft", kind: "round" }, () => step(-1));
  const next = button("Next image", { name: "open", text: false, key: "ArrowRight", kind: "round" }, () => step(1));
  const search = () => { const from = current; frame.close(); location.hash = `#search?pos=${from}`; };
  const body = el("div", { class: "lightbox" }, el("div", { class: "stage" }, previous, large, next),
    el("div", { class: "aside" }, path, known,
      el("div", { class: "row" }, button("Move to …", { name: "move", key: "M" }, () => askMove([current])), junk, pick,
        button("Search", { name: "search", key: "S" }, search)),
      el("h3", { text: "Most alike" }), like));

  function fill() {
    const { coarse, kind, confidence, role, known: byHand } = facts(current);
    const rows = [["Class", coarse], ["Kind", `${kind ?? "none"}${byHand ? ", set by hand" : ""}`], ["Confidence", confidence === null ? "" : confidence.toFixed(2)], ["Role", role === "none" ? "" : role]];
    known.replaceChildren(...rows.filter(([, value]) => value).map(([name, value]) => el("div", {}, el("dt", { text: name }), el("dd", { text: value }))));
    large.alt = `Image ${current}: ${describe(current)}`;
    pick.setAttribute("aria-pressed", String(selection.has(current)));
    junk.lastChild.textContent = role === "junk" ? "Not junk" : "Junk";
    previous.disabled = among.indexOf(current) <= 0;
    next.disabled = among.indexOf(current) >= among.length - 1;
  }

  async function show(image, list) {
    current = image;
    among = list;
    const mine = (serial += 1);
    large.src = full(image);
    path.textContent = " ";
    like.replaceChildren();
    fill();
    const [about, alike] = await Promise.all([
      get("images", { ids: image }).catch(() => null),
      post("search", { positive: [image], negative: [], uploads: [], coarse: null, kind: null, k: LIKE + 1 }).catch(() => null),
    ]);
    if (mine !== serial) return; // another image is shown by now
    path.textContent = printable(about?.images[0]?.path ?? "");
    const others = (alike?.results ?? []).filter((found) => found.id !== image).slice(0, LIKE);
    like.replaceChildren(...others.map((found) => el("button", {
      type: "button", class: "plain", title: describe(found.id), "aria-label": `Show image ${found.id}: ${describe(found.id)}`,
      on: { click: () => show(found.id, others.map((other) => other.id)) },
    }, thumbnail(found.id))));
  }

  const frame = openDialog("Image", body, { scope: "lightbox", wide: true, onClose: () => { open = null; } });
  open = { show, fill, step, current: () => current, search, toggle: () => pick.click() };
  show(id, ids);
}

const whenOpen = (run) => () => (open ? void run(open) : false);
shortcut("lightbox", ["ArrowLeft"], "Previous image", whenOpen((box) => box.step(-1)));
shortcut("lightbox", ["ArrowRight"], "Next image", whenOpen((box) => box.step(1)));
shortcut("lightbox", ["m"], "Move it to a kind", whenOpen((box) => askMove([box.current()])));
shortcut("lightbox", ["j"], "Junk, or not", whenOpen((box) => toggleJunk([box.current()])));
shortcut("lightbox", ["x"], "Select it", whenOpen((box) => box.toggle()));
shortcut("lightbox", ["s"], "Search for images like it", whenOpen((box) => box.search()));
on("change", () => open?.fill());
