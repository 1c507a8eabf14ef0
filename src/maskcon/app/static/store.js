// The state of the session as last received from the server, and the edits on their way to it.
//
// An edit counts as saved only when the server has answered, which it does after writing it durably. Edits without an answer
// wait here (and in sessionStorage, over a reload) and are sent again; by their id the server applies each only once.

import { get, post, read, Failure } from "./api.js";
import { setVersion } from "./dom.js";

const WAITING = "maskcon-waiting-edits";
const RETRY_MS = 1500;
const ROLES = ["typical", "borderline", "outlier", "junk", "none"];
const KNOWN = 128; // bit beside the role: a person set the kind
const NO_KIND = 65535;

export const store = {
  state: null, // as of GET /api/state
  kinds: [], // of all classes, in the order that the labels number them: {coarse, name, size, ...}
  labels: null, // {coarse, kind, confidence, role}, one entry per image
  saved: null, // Date of the last acknowledged edit
  online: true,
  problem: "", // why the server cannot be reached
  waiting: [], // edits without an answer: {path, body, resolve, reject}
};

const bus = new EventTarget();
export const on = (name, handler) => bus.addEventListener(name, (event) => handler(event.detail));
const tell = (name, detail) => bus.dispatchEvent(new CustomEvent(name, { detail }));

export const classNamed = (name) => store.state.classes.find((group) => group.name === name) ?? null;
export const kindNamed = (coarse, name) => classNamed(coarse)?.kinds.find((kind) => kind.name === name) ?? null;

/** What is known about an image without asking the server. */
export function facts(id) {
  const { labels, kinds, state } = store;
  if (!labels) return { coarse: "", kind: null, confidence: null, role: "none", known: false };
  const kind = labels.kind[id] === NO_KIND ? null : kinds[labels.kind[id]]?.name ?? null;
  return {
    coarse: state.classes[labels.coarse[id]]?.name ?? "", kind,
    confidence: labels.confidence[id] / 255, role: ROLES[labels.role[id] % KNOWN], known: labels.role[id] >= KNOWN,
  };
}

export function describe(id) {
  const { coarse, kind, role } = facts(id);
  const marked = role === "borderline" || role === "outlier" || role === "junk" ? `, ${role}` : "";
  return `${coarse}${kind ? `, ${kind}` : ""}${marked}`;
}

let refreshing = null;
let stale = false;

/** Fetch state and labels; calls during a fetch lead to one more after it. */
export function refresh() {
  if (refreshing) {
    stale = true;
    return refreshing;
  }
  refreshing = fetchAll().finally(() => {
    refreshing = null;
    if (stale) {
      stale = false;
      refresh();
    }
  });
  return refreshing;
}

async function fetchAll() {
  try {
    for (;;) {
      const [state, { bytes, headers }] = await Promise.all([get("state"), read("labels")]);
      if (Number(headers.get("X-Revision")) !== state.revision) continue; // an edit came between the two
      const n = state.images;
      store.state = state;
      setVersion(state.images_version ?? "");
      store.kinds = state.classes.flatMap((group) => group.kinds.map((kind) => ({ coarse: group.name, ...kind })));
      store.labels = {
        coarse: new Uint16Array(bytes, 0, n), kind: new Uint16Array(bytes, 2 * n, n),
        confidence: new Uint8Array(bytes, 4 * n, n), role: new Uint8Array(bytes, 5 * n, n),
      };
      break;
    }
    reach(true);
    tell("change");
  } catch (error) {
    lose(error);
  }
}

function reach(online, problem = "") {
  if (store.online === online && store.problem === problem) return;
  store.online = online;
  store.problem = problem;
  tell("status");
}

let retrying = 0;

function lose(error) {
  if (!(error instanceof Failure)) throw error;
  reach(false, error.status === 403
    ? "The server was restarted. Open the address it printed in this browser; this page then continues."
    : "The server does not answer. Nothing you typed is lost; trying again.");
  clearTimeout(retrying);
  retrying = setTimeout(retry, RETRY_MS);
}

async function retry() {
  await refresh();
  if (!store.online) return;
  listen();
  flush();
}

/**
 * Send an edit; resolves with the server's answer once it is saved.
 * @param {object} body {action, ...}; see the server's list of edits
 * @throws {Failure} if the server refuses it
 */
export const edit = (body) => enqueue("edits", body);
export const undo = () => enqueue("undo", {});
export const redo = () => enqueue("redo", {});
export const follow = () => enqueue("follow", {});

function enqueue(path, body) {
  const id = [...crypto.getRandomValues(new Uint8Array(8))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return new Promise((resolve, reject) => {
    store.waiting.push({ path, body: { ...body, edit_id: id }, resolve, reject });
    keep();
    flush();
  });
}

let flushing = false;

async function flush() {
  if (flushing) return;
  flushing = true;
  tell("status");
  try {
    await sendAll();
  } finally {
    flushing = false;
  }
  tell("status");
  if (store.online) await refresh();
}

async function sendAll() {
  while (store.waiting.length) {
    const next = store.waiting[0];
    try {
      const answer = await post(next.path, next.body);
      store.saved = new Date();
      next.resolve?.(answer);
      tell("saved", { ...answer, path: next.path });
    } catch (error) {
      if (!(error instanceof Failure) || error.passing) return lose(error);
      next.reject?.(error);
      tell("refused", error);
    }
    store.waiting.shift();
    keep();
  }
}

function keep() {
  const plain = store.waiting.map(({ path, body }) => ({ path, body }));
  if (plain.length) sessionStorage.setItem(WAITING, JSON.stringify(plain));
  else sessionStorage.removeItem(WAITING);
}

let events = null;

function listen() {
  events?.close();
  events = new EventSource("/api/events");
  events.onmessage = (message) => {
    const { revision, problem } = JSON.parse(message.data);
    if ((revision !== store.state?.revision || problem !== store.state.problem) && !flushing) refresh();
  };
  events.onerror = () => {
    events.close();
    refresh().then(() => { if (store.online) setTimeout(listen, RETRY_MS); });
  };
}

/** Load the session and follow its changes. */
export async function start() {
  store.waiting = JSON.parse(sessionStorage.getItem(WAITING) ?? "[]");
  await refresh();
  if (store.online) listen();
  if (store.waiting.length) flush();
  document.addEventListener("visibilitychange", () => { // browsers allow few connections, so hidden tabs hold none
    if (document.hidden) return events?.close();
    listen();
    return refresh();
  });
  addEventListener("beforeunload", (event) => { if (store.waiting.length) event.preventDefault(); });
}
