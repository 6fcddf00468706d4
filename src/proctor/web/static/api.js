// The JSON interface of this server, as a page uses it.

export class ApiError extends Error {
  constructor(status, wrong) {
    super(wrong.problem);
    this.status = status;
    this.remedy = wrong.remedy || "";
    this.line = wrong.line ?? null;
    this.column = wrong.column ?? null;
  }
}

async function ask(method, address, body, options = {}) {
  let response;
  try {
    response = await fetch(address, {
      method,
      headers: body === undefined ? {} : { "content-type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: options.signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { problem: "The server does not answer.", remedy: "Is `proctor serve` still running?" });
  }
  if (response.status === 401) location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
  const found = await response.json().catch(() => ({}));
  if (!response.ok) throw new ApiError(response.status, found.error || { problem: `The server answered ${response.status}.` });
  return found;
}

export const api = {
  get: (address, options) => ask("GET", address, undefined, options),
  post: (address, body = {}, options) => ask("POST", address, body, options),
  delete: (address, options) => ask("DELETE", address, undefined, options),
};

/** `query({a: 1, b: "", c: ["x", "y"]})` is `?a=1&c=x&c=y`: empty values are left out. */
export function query(values) {
  const made = new URLSearchParams();
  for (const [name, value] of Object.entries(values))
    for (const each of Array.isArray(value) ? value : [value])
      if (each !== "" && each !== null && each !== undefined) made.append(name, each);
  const text = made.toString();
  return text ? `?${text}` : "";
}
