// Client of the JSON API of this server.

export class ApiError extends Error {
  constructor(status, error) {
    super(error.problem);
    this.status = status;
    this.remedy = error.remedy || "";
    this.line = error.line ?? null;
    this.column = error.column ?? null;
  }
}

async function request(method, address, body, options = {}) {
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
    throw new ApiError(0, { problem: "The server is not responding.", remedy: "Check that `proctor serve` is running." });
  }
  if (response.status === 401) location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
  const payload = await response.json().catch(() => ({}));
  if (!response.ok) throw new ApiError(response.status, payload.error || { problem: `The server returned status ${response.status}.` });
  return payload;
}

export const api = {
  get: (address, options) => request("GET", address, undefined, options),
  post: (address, body = {}, options) => request("POST", address, body, options),
  delete: (address, options) => request("DELETE", address, undefined, options),
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
