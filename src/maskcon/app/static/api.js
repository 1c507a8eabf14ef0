// Requests to the server. Failure.status 0 means that no answer came.

export class Failure extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }

  /** Whether asking again later can help: no server, one that was started anew, or one in trouble. */
  get passing() {
    return this.status === 0 || this.status === 403 || this.status >= 502;
  }
}

async function request(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure("The server does not answer.", 0);
  }
  if (answer.ok) return answer;
  let message = `The server answered ${answer.status}.`;
  try {
    message = (await answer.json()).error ?? message;
  } catch { /* an answer without JSON keeps the status as its message */ }
  throw new Failure(message, answer.status);
}

const query = (params) => {
  const given = Object.entries(params).filter(([, value]) => value !== null && value !== undefined);
  return given.length ? `?${new URLSearchParams(given)}` : "";
};

export const get = async (path, params = {}, signal = undefined) =>
  (await request(`/api/${path}${query(params)}`, { signal })).json();

/** Answer of a binary read, with its headers. */
export const read = (path) => request(`/api/${path}`);

export const post = async (path, body = {}, signal = undefined) =>
  (await request(`/api/${path}`, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal,
  })).json();

export const upload = async (file) =>
  (await request("/api/upload", {
    method: "POST", headers: { "Content-Type": "application/octet-stream" }, body: file,
  })).json();
