// The view "Check": images that look mislabelled, near-duplicates and outliers, one after another.

import { el, button, full, thumbnail } from "./dom.js";
import { get, post } from "./api.js";
import { apply, askMove, toggleJunk } from "./actions.js";
import { describe, facts, on, store } from "./store.js";
import { Queue } from "./queue.js";
import { showImage } from "./lightbox.js";
import { shortcut } from "./keys.js";

const QUEUES = {
  mislabelled: ["Mislabelled?", ({ coarse }) => `Does this belong to ${coarse}?`, "No image looks mislabelled."],
  duplicates: ["Near-duplicates", () => "Are these the same image?", "There are no near-duplicates."],
  outliers: ["Outliers", ({ coarse, kind }) => kind ? `Does this belong to ${kind} of ${coarse}?` : `Does this belong to ${coarse}?`, "There are no outliers."],
};
const LIKE = 6;
const POLL_MS = 1000;

export function makeCheck(root) {
  let name = "mislabelled";
  let fetched = ""; // the queue shown
  const tabs = el("nav", { class: "segmented", "aria-label": "Queues" }, ...Object.entries(QUEUES).map(([key, [title]]) =>
    el("a", { class: "button", href: `#check/${key}`, data: { queue: key }, text: title })));
  const queue = new Queue({ draw, done: "That was the last one.", none: "" });
  root.append(el("div", { class: "view-head" }, tabs), queue.node);

  function figure(id, place, ids) {
    const { role } = facts(id);
    const text = el("figcaption", {}, el("span", { text: describe(id) }));
    const image = el("img", { class: "large", alt: `Image ${id}: ${describe(id)}`, decoding: "async" });
    image.src = full(id);
    const node = el("figure", { class: role }, el("button", { type: "button", class: "plain", "aria-label": `Show image ${id}`, on: { click: () => showImage(id, ids) } }, image), text);
    if (ids.length > 1) {
      text.append(button(role === "junk" ? "Not junk" : "Junk this one", { name: "junk", key: String(place + 1), showKey: true }, () => junkAt(place)));
    }
    return node;
  }

  function draw(item) {
    const like = el("div", { class: "like" });
    const single = item.ids.length === 1;
    if (single) {
      post("search", { positive: item.ids, negative: [], uploads: [], coarse: null, kind: null, k: LIKE + 1 }).then(({ results }) => {
        like.replaceChildren(...results.filter(({ id }) => id !== item.ids[0]).slice(0, LIKE).map(({ id }) => el("button", {
          type: "button", class: "plain like-one", "aria-label": `Show image ${id}: ${describe(id)}`, on: { click: () => showImage(id) },
        }, thumbnail(id), el("span", { class: "caption", text: describe(id) }))));
      }).catch(() => {}); // without its neighbours the item can still be judged
    }
    const figures = el("div", { class: `figures ${single ? "single" : ""}` }, ...item.ids.map(figure));
    return el("article", { class: single ? "beside" : "" }, single ? figures : null,
      el("div", { class: "side" }, el("h2", { class: "question", text: QUEUES[name][1](facts(item.ids[0])) }), el("p", { class: "soft", text: item.reason }),
        el("div", { class: "row answers" },
          button(single ? "Keep" : "Keep all", { name: "check", key: "K", showKey: true }, keep),
          single ? button("Junk", { name: "junk", key: "J", showKey: true }, () => junkAt(0)) : null,
          single ? button("Move to …", { name: "move", key: "M", showKey: true }, () => move()) : null,
          single ? null : button("Junk all but the first", { kind: "primary", key: "A", showKey: true }, () => junkOthers())),
        single ? el("h3", { text: "Most alike" }) : null, like), single ? null : figures);
  }

  /** Go on at once; the edit is saved in the background. */
  function keep() {
    if (!queue.item) return;
    apply({ action: "keep", ids: queue.item.ids, queue: name });
    queue.go(1);
  }

  async function junkAt(place) {
    const id = queue.item?.ids[place];
    if (id === undefined) return false;
    const was = queue.item;
    await toggleJunk([id]);
    if (queue.item === was) queue.go(1);
    return true;
  }

  async function junkOthers() {
    const was = queue.item;
    if (!was || was.ids.length < 2) return;
    if (await apply({ action: "junk", ids: was.ids.slice(1) }) && queue.item === was) queue.go(1);
  }

  async function move() {
    if (!queue.item) return;
    await askMove(queue.item.ids);
  }

  async function load() {
    fetched = name;
    queue.none = QUEUES[name][2];
    queue.wait("Looking …");
    try {
      for (const wanted = name; fetched === wanted;) {
        const { items, done, total } = await get("check", { queue: wanted });
        if (fetched !== wanted) return;
        if (items) return void queue.set(items);
        queue.wait(`Looking at all images: ${Math.round((100 * done) / Math.max(1, total))} %`);
        await new Promise((resolve) => { setTimeout(resolve, POLL_MS); });
      }
    } catch (error) {
      fetched = "";
      queue.wait(error.message);
    }
  }

  on("change", () => {
    if (root.hidden || !queue.item) return;
    for (const [place, id] of queue.item.ids.entries()) {
      const old = queue.card.querySelectorAll("figure")[place];
      if (old) old.replaceWith(figure(id, place, queue.item.ids));
    }
  });

  shortcut("check", ["k"], "Keep, and do not ask again", keep);
  shortcut("check", ["ArrowRight"], "Go on to the next one", () => queue.go(1));
  shortcut("check", ["ArrowLeft"], "Back to the one before", () => queue.go(-1));
  shortcut("check", ["j"], "Junk", () => (queue.item?.ids.length === 1 ? void junkAt(0) : false));
  shortcut("check", ["1", "2", "3", "4", "5", "6", "7", "8", "9"], "Junk the first, second, ... of a group", (event, key) => (queue.item?.ids.length > 1 ? void junkAt(Number(key) - 1) : false));
  shortcut("check", ["m"], "Move it to a kind", () => void move());
  shortcut("check", ["a"], "Junk all but the first of a group", () => void junkOthers());

  return {
    title: "Check",
    show([wanted]) {
      name = wanted in QUEUES ? wanted : "mislabelled";
      for (const link of tabs.children) {
        if (link.dataset.queue === name) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
      }
      if (fetched !== name && store.state) load();
    },
  };
}
