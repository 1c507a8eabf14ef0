// Items judged one after another by single keys: shared by "Check" and "Ask".

import { el, count } from "./dom.js";
import { say } from "./notices.js";

export class Queue {
  /**
   * @param {{draw: (item: object) => Node, done: string, none: string}} options
   *   draw: makes the card of an item; done, none: texts after the last item, and if there is none
   */
  constructor({ draw, done, none }) {
    this.draw = draw;
    this.done = done;
    this.none = none;
    this.items = [];
    this.place = 0;
    this.progress = el("p", { class: "progress-text" });
    this.bar = el("span", { class: "bar wide", "aria-hidden": "true" }, el("span"));
    this.card = el("div", { class: "queue-card", tabIndex: -1 });
    this.node = el("div", { class: "queue" }, el("div", { class: "queue-progress" }, this.progress, this.bar), this.card);
  }

  get item() { return this.items[this.place] ?? null; }

  wait(text) {
    this.items = [];
    this.progress.textContent = "";
    this.bar.hidden = true;
    this.card.replaceChildren(el("p", { class: "empty", text }));
  }

  set(items) {
    this.items = items;
    this.place = 0;
    this.show();
  }

  go(by) {
    const next = Math.min(this.items.length, Math.max(0, this.place + by));
    if (next === this.place) return;
    this.place = next;
    this.show();
  }

  show() {
    const { item, items, place } = this;
    this.bar.hidden = !items.length;
    this.bar.firstChild.style.width = `${items.length ? (100 * place) / items.length : 0}%`;
    this.progress.textContent = items.length ? (item ? `${(place + 1).toLocaleString("en")} of ${items.length.toLocaleString("en")}` : `${count(items.length, "item")} seen`) : "";
    if (item) this.card.replaceChildren(this.draw(item));
    else this.card.replaceChildren(el("div", { class: "empty" }, el("h2", { text: items.length ? this.done : this.none })));
    say(item ? `${this.progress.textContent}. ${this.card.querySelector(".question")?.textContent ?? ""}` : this.card.textContent);
  }
}
