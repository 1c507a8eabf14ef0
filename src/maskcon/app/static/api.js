// Requests to the server. Failure.status 0 means that no whole answer came.

export class Failure extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }

  /** Whether a later retry can help: the server is gone, was restarted, or is in trouble. */
  get passing() {
    return this.status === 0 || this.status === 403 || this.status >= 502;
  }
}

/** Wait for an answer, or for its body: a connection that breaks is a server that does not answer. */
async function arrival(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure("The server does not answer.", 0);
  }
}

async function request(path, options = {}) {
  const answer = await arrival(fetch(path, { credentials: "same-origin", ...options }));
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

const json = async (path, options = {}) => arrival((await request(`/api/${path}`, options)).json());

export const get = (path, params = {}) => json(`${path}${query(params)}`);

/** Read bytes: {bytes, headers}. */
export async function read(path) {
  const answer = await request(`/api/${path}`);
  return { bytes: await arrival(answer.arrayBuffer()), headers: answer.headers };
}

export const post = (path, body = {}, signal = undefined) => json(path, {
  method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal,
});

export const upload = (file) => json("upload", {
  method: "POST", headers: { "Content-Type": "application/octet-stream" }, body: file,
});
