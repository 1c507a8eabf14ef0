// The view "Ask": the questions whose answers help most, by number keys or by typing a name.

import { el, button, full, thumbnail } from "./dom.js";
import { get } from "./api.js";
import { apply, followAnswers } from "./actions.js";
import { facts, kindNamed, on, store } from "./store.js";
import { Queue } from "./queue.js";
import { showImage } from "./lightbox.js";
import { shortcut } from "./keys.js";

const QUESTIONS = 50;

export function makeAsk(root) {
  let loaded = false;
  const drafts = new Map(); // item -> text typed for it
  const queue = new Queue({ draw, done: "That was the last question. “Let others follow” applies your answers to the other images.", none: "There is nothing to ask: the kinds are clear, or each class has only one." });
  const others = button("Let others follow", { name: "move" }, () => followAnswers().then(load));
  const more = button("New questions", { name: "restore" }, () => load());
  root.append(el("div", { class: "view-head" }, el("p", { class: "soft", text: "These are the images whose names would help most." }), el("div", { class: "row push" }, others, more)), queue.node);

  function draw(item) {
    const field = el("input", { type: "text", class: "field", placeholder: "Another name", autocomplete: "off", dir: "auto", spellcheck: false, "aria-label": "Another name for it", value: drafts.get(item) ?? "" });
    field.addEventListener("input", () => drafts.set(item, field.value));
    field.addEventListener("keydown", (event) => {
      const to = field.value.trim();
      if (event.key === "Enter" && to) answer({ action: "move", ids: item.ids, to });
      else if (event.key === "Escape") field.blur();
    });
    return el("article", { class: "beside" },
      el("div", { class: `figures ${item.ids.length === 1 ? "single" : ""}` }, ...item.ids.map((id) => {
        const image = el("img", { class: "large", alt: `Image ${id} of ${item.coarse}`, decoding: "async" });
        image.src = full(id);
        return el("figure", {}, el("button", { type: "button", class: "plain", "aria-label": `Show image ${id}`, on: { click: () => showImage(id, item.ids) } }, image));
      })),
      el("div", { class: "side" }, el("h2", { class: "question", text: "Which kind is this?" }), el("p", { class: "soft", text: `${item.coarse}: ${item.reason}` }),
        el("div", { class: "ask-choices" }, ...item.answers.map((choice, place) => {
          const known = kindNamed(item.coarse, choice.label);
          return el("button", { type: "button", class: "ask-choice", "aria-keyshortcuts": String(place + 1), on: { click: () => answer(choice.edit) } },
            place < 9 ? el("kbd", { text: String(place + 1) }) : null, el("span", { class: "choice-name", text: choice.label }),
            ...(known?.typical.slice(0, 4).map((id) => thumbnail(id, { size: 64, lazy: false })) ?? []));
        })),
        el("div", { class: "row" }, field, button("Skip", { key: "ArrowRight", showKey: true }, () => queue.go(1)),
          button("Junk", { name: "junk", key: "J", showKey: true }, () => answer({ action: "junk", ids: item.ids })))));
  }

  /** Go on at once; the answer is saved, or kept and sent again, in the background. */
  function answer(edit) {
    if (!queue.item) return;
    drafts.delete(queue.item);
    queue.go(1);
    apply(edit);
  }

  async function load() {
    loaded = true;
    queue.wait("Choosing the questions …");
    try {
      const { items } = await get("ask", { n: QUESTIONS });
      queue.set(items);
    } catch (error) {
      loaded = false;
      queue.wait(error.message);
    }
  }

  shortcut("ask", ["1", "2", "3", "4", "5", "6", "7", "8", "9"], "Choose the answer with this number", (event, key) => {
    const choice = queue.item?.answers[Number(key) - 1];
    return choice ? void answer(choice.edit) : false;
  });
  shortcut("ask", ["t", "n"], "Type another name", () => queue.card.querySelector("input")?.focus());
  shortcut("ask", ["ArrowRight"], "Skip", () => queue.go(1));
  shortcut("ask", ["ArrowLeft"], "Back to the one before", () => queue.go(-1));
  shortcut("ask", ["j"], "Junk", () => (queue.item ? void answer({ action: "junk", ids: queue.item.ids }) : false));

  on("change", () => { // another tab may have answered it
    if (!root.hidden && queue.item?.ids.every((id) => facts(id).known)) queue.go(1);
  });

  return { title: "Ask", show() { if (!loaded && store.state) load(); } };
}
