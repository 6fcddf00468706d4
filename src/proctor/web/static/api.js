// Client of the JSON API of this server.

import { go, here, urlOf } from "./dom.js";

export class ApiError extends Error {
  constructor(status, error) {
    super(error.problem);
    this.status = status;
    this.remedy = error.remedy || "";
    this.line = error.line ?? null;
    this.column = error.column ?? null;
  }
}

async function request(method, path, body, options = {}) {
  let response;
  try {
    response = await fetch(urlOf(path), {
      method,
      headers: body === undefined ? {} : { "content-type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: options.signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { problem: "The server is not responding.", remedy: "Check that `proctor serve` is running." });
  }
  if (response.status === 401) go(`/login?next=${encodeURIComponent(here())}`);
  const payload = await response.json().catch(() => ({}));
  if (!response.ok) throw new ApiError(response.status, payload.error || { problem: `The server returned status ${response.status}.` });
  return payload;
}

export const api = {
  get: (path, options) => request("GET", path, undefined, options),
  post: (path, body = {}, options) => request("POST", path, body, options),
  delete: (path, options) => request("DELETE", path, undefined, options),
};

/** `query({a: 1, b: "", c: ["x", "y"]})` returns `?a=1&c=x&c=y`; empty values are omitted. */
export function query(values) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(values))
    for (const each of Array.isArray(value) ? value : [value])
      if (each !== "" && each !== null && each !== undefined) parameters.append(name, each);
  const text = parameters.toString();
  return text ? `?${text}` : "";
}

/** The whole text of a message; lists of events have only the beginning of a long one. */
export async function wholeText(session, { position, content }) {
  return content.isCut ? (await api.get(`/api/sessions/${encodeURIComponent(session)}/texts/${position}/content`)).text : content.text;
}
