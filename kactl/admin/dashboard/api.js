// Requests to the admin API. The page may be served below a prefix, so that all addresses are relative to it.

const base = new URL(".", document.baseURI);
const KEY = "kactl.credential";

/** An answer other than success; its message is what the server says about it. */
export class Problem extends Error {
  constructor(status, title, detail) {
    super(detail || title);
    this.status = status;
    this.title = title;
  }
}

// One tab and one origin; it is gone when the tab is closed.
export const credential = {
  get: () => sessionStorage.getItem(KEY),
  forget: () => sessionStorage.removeItem(KEY),
};

/** Exchanges a token, or a code of `kactl dashboard`, for a ticket that lasts some hours. Keeps the ticket alone. */
export async function logIn(text) {
  credential.forget();
  try {
    const response = await request("POST", "v1/login", { body: {}, headers: { Authorization: `Bearer ${text}` } });
    sessionStorage.setItem(KEY, (await response.json()).ticket);
  } catch (error) {
    if (error.status !== 501) throw error;
    // Another program serves the API, and identifies its clients itself.
    sessionStorage.setItem(KEY, text);
    await request("GET", "v1/controller").catch((failure) => {
      credential.forget();
      throw failure;
    });
  }
}

/** Sends a request. Returns the response, after an error as an exception. */
export async function request(method, path, { body, headers = {}, signal } = {}) {
  // A program that identifies browsers by cookies accepts changes with this header only, which no form can send.
  const sent = { Accept: "application/json", "X-Kactl-Request": "1" };
  if (credential.get()) sent.Authorization = `Bearer ${credential.get()}`;
  Object.assign(sent, headers);
  if (body !== undefined) sent["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(new URL(path, base), {
      method,
      headers: sent,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
      redirect: "follow",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "Unreachable", "the server cannot be reached: it may have been stopped; this page retries");
  }
  if (response.ok) return response;
  let problem = {};
  try {
    problem = await response.json();
  } catch {
    problem = { title: `status ${response.status}` };
  }
  if (response.status === 401) document.dispatchEvent(new CustomEvent("kactl:unauthorized"));
  throw new Problem(response.status, problem.title, problem.detail);
}

/** Returns the JSON that a path answers. */
export const get = async (path, options) => (await request("GET", path, options)).json();

/** Sends a body. Returns the JSON that answers it. */
export const post = async (path, body, options) => (await request("POST", path, { ...options, body })).json();

/** Path segments and query values are encoded here and nowhere else. */
export function path(parts, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value != null && value !== "");
  const text = new URLSearchParams(given).toString();
  return `v1/${parts.map((part) => encodeURIComponent(part)).join("/")}${text ? `?${text}` : ""}`;
}
