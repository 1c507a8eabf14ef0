// The view "Kinds": all coarse classes with their kinds, to look at and name.

import { el, count, debounce, reconcile, printable } from "./dom.js";
import { classNamed, on, store } from "./store.js";
import { kindRow } from "./kind_row.js";
import { suggestionsFor } from "./suggestions.js";
import { showKind, hideKind } from "./kind.js";
import { shortcut } from "./keys.js";

const ORDERS = {
  size: ["Largest first", (a, b) => b.images - a.images],
  name: ["A to Z", (a, b) => a.name.localeCompare(b.name)],
  doubt: ["Least stable first", (a, b) => (a.stability ?? 1) - (b.stability ?? 1)],
};
const NEAR = "600px"; // sections are built when they come this close

export function makeKinds(root) {
  const filter = el("input", { type: "search", class: "field", placeholder: "Find a class or kind", "aria-label": "Find a class or kind" });
  const order = el("select", { class: "field", "aria-label": "Order of the classes" },
    ...Object.entries(ORDERS).map(([value, [text]]) => el("option", { value, text })));
  const unnamed = el("input", { type: "checkbox" });
  const progress = el("p", { class: "progress-text" });
  const bar = el("span", { class: "bar wide", "aria-hidden": "true" }, el("span"));
  const list = el("ul", { class: "class-list" });
  const sections = el("div", { class: "sections" });
  const empty = el("p", { class: "empty", text: "No class or kind matches. Clear the filter to see all.", hidden: true });
  const overview = el("div", { class: "overview" },
    el("aside", { class: "sidebar", "aria-label": "Coarse classes" },
      el("div", { class: "sidebar-top" }, progress, bar, filter,
        el("div", { class: "row" }, order, el("label", { class: "check" }, unnamed, el("span", { text: "To name" })))),
      el("nav", { "aria-label": "Coarse classes" }, list)),
    el("div", { class: "scroll", tabIndex: -1 }, empty, sections));
  const scroller = overview.lastElementChild;
  const opened = el("div", { class: "opened", hidden: true });
  root.append(overview, opened);

  const near = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) if (isIntersecting) build(target);
  }, { root: scroller, rootMargin: NEAR });

  function create(group) {
    const title = el("h2");
    const about = el("span", { class: "soft" });
    const names = el("datalist", { id: `names-${CSS.escape(group.name)}` });
    const offers = el("div", { class: "offers" });
    const rows = el("div", { class: "kinds-of-class" });
    const section = el("section", { class: "class", tabIndex: -1 }, el("header", {}, title, about), names, offers, rows);
    Object.assign(section, { group, rows, offers, built: false, update() {
      title.textContent = printable(section.group.name);
      const { stability, kinds, images, junk } = section.group;
      about.textContent = [count(images, "image"), count(kinds.length, "kind"), junk ? `${junk} junk` : "",
        stability === null || kinds.length < 2 ? "" : `stability ${stability.toFixed(2)}${stability < 0.6 ? ", check before you trust it" : ""}`].filter(Boolean).join(" · ");
      names.replaceChildren(...kinds.filter((kind) => kind.named).map((kind) => el("option", { value: kind.name })));
      rows.style.minHeight = section.built ? "" : `${kinds.length * 110}px`;
      if (!section.built) return;
      reconcile(rows, section.shown, (kind) => kind.name, (kind) => kindRow(group.name, kind, names.id, nextField), (node, kind) => node.update(kind));
      suggestionsFor(offers, section.group);
    } });
    near.observe(section);
    return section;
  }

  function build(section) {
    if (section.built) return;
    section.built = true;
    section.update();
  }

  /** Go to the next field without a name. */
  function nextField(field) {
    const all = [...sections.querySelectorAll("section.class")];
    const here = all.indexOf(field.closest("section.class"));
    for (const section of all.slice(here, here + 12)) build(section); // those out of sight hold no fields yet
    const fields = [...sections.querySelectorAll("input.name")];
    const next = fields.slice(fields.indexOf(field) + 1).find((other) => !other.value) ?? fields[fields.indexOf(field) + 1];
    if (next) {
      next.focus({ preventScroll: true });
      next.closest(".kind").scrollIntoView({ block: "center", behavior: "instant" });
    } else field.blur();
  }

  function draw() {
    if (!store.state) return;
    const text = filter.value.trim().toLowerCase();
    const groups = [...store.state.classes].sort(ORDERS[order.value][1]);
    const visible = groups.flatMap((group) => {
      const shown = group.kinds.filter((kind) => (!unnamed.checked || !kind.named)
        && (!text || group.name.toLowerCase().includes(text) || kind.name.toLowerCase().includes(text)));
      return shown.length ? [{ group, shown }] : [];
    });
    reconcile(sections, visible, ({ group }) => group.name, ({ group }) => create(group), (section, { group, shown }) => {
      section.group = group;
      section.shown = shown;
      section.update();
    });
    reconcile(list, visible, ({ group }) => group.name, classEntry, updateEntry);
    empty.hidden = visible.length > 0;
    const all = store.kinds.length;
    const named = store.kinds.filter((kind) => kind.named).length;
    progress.textContent = `${named} of ${count(all, "kind")} named`;
    bar.firstChild.style.width = `${all ? (100 * named) / all : 0}%`;
  }

  function classEntry({ group }) {
    const link = el("a", { href: `#kinds/${encodeURIComponent(group.name)}` }, el("span", { class: "class-name", text: group.name }), el("span", { class: "soft" }));
    return el("li", {}, link);
  }

  function updateEntry(node, { group }) {
    const named = group.kinds.filter((kind) => kind.named).length;
    const text = node.querySelector(".soft");
    text.textContent = `${named}/${group.kinds.length}`;
    text.title = `${named} of ${count(group.kinds.length, "kind")} named, ${count(group.images, "image")}`;
    node.classList.toggle("done", named === group.kinds.length);
  }

  filter.addEventListener("input", debounce(draw, 120));
  order.addEventListener("change", draw);
  unnamed.addEventListener("change", draw);
  on("change", draw);
  draw();

  shortcut("kinds", ["n"], "Name the next kind without a name", () => {
    if (!opened.hidden) return opened.querySelector("input.name")?.focus();
    for (const section of [...sections.children].slice(0, 12)) build(section);
    return ([...sections.querySelectorAll("input.name")].find((field) => !field.value && field.getBoundingClientRect().top > 0)
      ?? sections.querySelector("input.name"))?.focus();
  });
  shortcut("kinds", ["/"], "Find a class or kind", () => { if (opened.hidden) filter.focus(); });

  return {
    title: "Kinds",
    show([coarse, kind]) {
      const open = kind !== undefined && classNamed(coarse) !== null;
      overview.hidden = open;
      opened.hidden = !open;
      if (open) return showKind(opened, coarse, kind);
      hideKind();
      const section = [...sections.children].find((node) => node.dataset.key === coarse);
      if (section) {
        build(section);
        section.scrollIntoView({ block: "start" });
        section.focus({ preventScroll: true });
      }
      for (const link of list.querySelectorAll("a")) {
        if (section && link.parentElement.dataset.key === coarse) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      }
      return null;
    },
  };
}
