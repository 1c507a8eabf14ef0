// The view "Search": by images of the session and by files; several at once, with "not like this".

import { el, button, icon, thumbnail, count } from "./dom.js";
import { post, upload } from "./api.js";
import { on, store } from "./store.js";
import { Grid } from "./grid.js";
import { showImage } from "./lightbox.js";
import { shortcut } from "./keys.js";
import { say, toast } from "./notices.js";

const K = 96;
const LARGEST = 32 * 1024 * 1024;

export function makeSearch(root) {
  let query = { pos: [], neg: [], files: [], coarse: null, kind: null };
  const files = new Map(); // name given by the server -> {url, title}
  let running = null; // AbortController of the current search

  const chooser = el("input", { type: "file", accept: "image/*", multiple: true, class: "visually-hidden", tabIndex: -1, "aria-label": "Image files to search by" });
  const browse = button("Choose files …", { name: "file" }, () => chooser.click());
  const pos = el("ul", { class: "query-set", "aria-label": "Like these" });
  const neg = el("ul", { class: "query-set", "aria-label": "Not like these" });
  const likes = el("div", { class: "query-side" }, el("h3", {}, icon("plus"), el("span", { text: "Like" })), pos);
  const unlikes = el("div", { class: "query-side" }, el("h3", {}, icon("minus"), el("span", { text: "Not like" })), neg);
  const coarse = el("select", { class: "field", "aria-label": "Only of this class" });
  const kind = el("select", { class: "field", "aria-label": "Only of this kind" });
  const clear = button("Clear", { name: "close", kind: "quiet" }, () => { location.hash = "#search"; });
  const message = el("p", { class: "soft", role: "status" });
  const grid = new Grid({ label: "Results, the most alike first", size: 116, onOpen: showImage });
  const empty = el("div", { class: "drop" }, icon("search"), el("h2", { text: "Drop images here" }),
    el("p", { class: "soft", text: "or paste one, choose files, or press S on any image in the other views. Images do not leave this machine." }));
  root.append(el("div", { class: "search-head" }, likes, unlikes, el("div", { class: "row push" }, coarse, kind, browse, clear, chooser)), message, empty, grid.node);

  const link = (changes) => {
    const next = { ...query, ...changes };
    const params = [["pos", next.pos.join(",")], ["neg", next.neg.join(",")], ["files", next.files.join(",")], ["coarse", next.coarse], ["kind", next.kind]]
      .filter(([, value]) => value).map(([key, value]) => `${key}=${encodeURIComponent(value)}`);
    return params.length ? `#search?${params.join("&")}` : "#search";
  };
  const go = (changes) => { location.hash = link(changes); };
  coarse.addEventListener("change", () => go({ coarse: coarse.value || null, kind: null }));
  kind.addEventListener("change", () => go({ kind: kind.value || null }));

  async function take(list) {
    const images = [...list].filter((file) => file.type.startsWith("image/") || file.name);
    if (!images.length) return;
    if (!store.state?.can_upload) return toast("This session was opened from an embeddings file, so it cannot embed new images.", { kind: "bad" });
    const added = [];
    for (const file of images) {
      if (file.size > LARGEST) {
        toast(`${file.name} is larger than 32 MB`, { kind: "bad" });
        continue;
      }
      message.textContent = `Reading ${file.name} …`;
      try {
        const { upload: name } = await upload(file);
        files.set(name, { url: URL.createObjectURL(file), title: file.name });
        added.push(name);
      } catch (error) {
        toast(`${file.name}: ${error.message}`, { kind: "bad" });
      }
    }
    message.textContent = "";
    if (added.length) go({ files: [...query.files, ...added] });
  }
  chooser.addEventListener("change", () => { take(chooser.files); chooser.value = ""; });
  addEventListener("dragover", (event) => {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    document.body.classList.add("dropping");
  });
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("dropping"); });
  addEventListener("drop", (event) => {
    document.body.classList.remove("dropping");
    if (!event.dataTransfer.files.length) return;
    event.preventDefault();
    take(event.dataTransfer.files);
  });
  addEventListener("paste", (event) => { if (event.clipboardData.files.length) take(event.clipboardData.files); });

  function entry(id, side) {
    const other = side === "pos" ? "neg" : "pos";
    const without = query[side].filter((own) => own !== id);
    return el("li", {}, el("button", { type: "button", class: "plain", "aria-label": `Show image ${id}`, on: { click: () => showImage(id) } }, thumbnail(id)),
      el("div", { class: "query-tools" },
        button(side === "pos" ? `Not like image ${id}` : `Like image ${id}`, { name: side === "pos" ? "minus" : "plus", text: false, kind: "mini" }, () => go({ [side]: without, [other]: [...query[other], id] })),
        button(`Remove image ${id}`, { name: "close", text: false, kind: "mini" }, () => go({ [side]: without }))));
  }

  function fileEntry(name) {
    const { url, title } = files.get(name) ?? { url: "", title: "an earlier file" };
    const image = el("img", { class: "thumb", alt: title, title });
    image.src = url;
    return el("li", {}, image, el("div", { class: "query-tools" },
      button(`Remove ${title}`, { name: "close", text: false, kind: "mini" }, () => go({ files: query.files.filter((own) => own !== name) }))));
  }

  function fillFilters() {
    if (!store.state) return;
    const fill = (node, all, names, value) => {
      node.replaceChildren(el("option", { value: "", text: all }), ...names.map((name) => el("option", { value: name, text: name })));
      node.value = value ?? "";
    };
    fill(coarse, "All classes", store.state.classes.map((group) => group.name), query.coarse);
    const kinds = store.state.classes.find((group) => group.name === query.coarse)?.kinds ?? [];
    fill(kind, "All kinds", kinds.map((one) => one.name), query.kind);
    kind.disabled = !kinds.length;
    browse.disabled = !store.state.can_upload;
  }
  on("change", () => { if (!root.hidden) fillFilters(); grid.refresh(); });

  async function run() {
    running?.abort();
    pos.replaceChildren(...query.pos.map((id) => entry(id, "pos")), ...query.files.map(fileEntry));
    neg.replaceChildren(...query.neg.map((id) => entry(id, "neg")));
    const any = query.pos.length + query.files.length > 0;
    unlikes.hidden = !query.neg.length;
    likes.hidden = !any;
    clear.hidden = !any && !query.neg.length;
    empty.hidden = any;
    grid.node.hidden = !any;
    message.textContent = "";
    if (!any) return grid.set([]);
    running = new AbortController();
    const started = performance.now();
    try {
      const { results } = await post("search", {
        positive: query.pos, negative: query.neg, uploads: query.files, coarse: query.coarse, kind: query.kind, k: K,
      }, running.signal);
      const captions = new Map(results.map(({ id, score }) => [id, score.toFixed(3)]));
      grid.top();
      grid.set([{ ids: results.map(({ id }) => id) }], captions);
      message.textContent = results.length ? `${count(results.length, "image")} in ${Math.round(performance.now() - started)} ms, the most alike first` : "No image fits these filters.";
      say(message.textContent);
    } catch (error) {
      if (error.name !== "AbortError") message.textContent = error.message;
    }
    return null;
  }

  shortcut("search", ["o"], "Choose files to search by", () => browse.click());

  return {
    title: "Search",
    show(_, params) {
      const numbers = (name) => [...new Set((params.get(name) ?? "").split(",").filter((part) => /^\d+$/.test(part)).map(Number))]
        .filter((id) => id < (store.state?.images ?? 0));
      query = {
        pos: numbers("pos"), neg: numbers("neg"), files: (params.get("files") ?? "").split(",").filter(Boolean),
        coarse: params.get("coarse"), kind: params.get("kind"),
      };
      fillFilters();
      run();
    },
  };
}
