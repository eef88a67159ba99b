// Requests to the server of this page: JSON both ways, errors that say what to do, and the login if a token is needed.

/** A request that failed; `status` is 0 if the server was not reached. */
export class RequestError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

let login = null;

/** Set the function that asks for the token. Its promise resolves when the server has accepted a token. */
export function useLogin(ask) {
  login = ask;
}

/** The error in a response. */
export async function failure(response) {
  let detail = "";
  try {
    const told = await response.json();
    detail = typeof told.detail === "string" ? told.detail : (told.message ?? "");
  } catch {
    // No JSON: the response is that of a proxy.
  }
  return new RequestError(
    response.status,
    detail || `The server answered ${response.status}: try again, or look at its terminal.`,
  );
}

/** Send a request and return its response; an error status throws a RequestError. A `body` is sent as JSON. */
export async function send(method, path, body, options = {}) {
  for (;;) {
    let response;
    try {
      const headers = { Accept: options.accept ?? "application/json", ...options.headers };
      if (body !== undefined) headers["Content-Type"] = "application/json";
      const text = body === undefined ? undefined : JSON.stringify(body);
      response = await fetch(path, { method, headers, body: text, signal: options.signal, cache: "no-store" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new RequestError(0, "The server does not answer. Is “convcoa serve” still running?");
    }
    if (response.ok) return response;
    if (response.status !== 401 || !login) throw await failure(response);
    await login();
  }
}

/** Send a request and return the JSON of its response; null for status 204. */
export async function json(method, path, body, options) {
  const response = await send(method, path, body, options);
  return response.status === 204 ? null : response.json();
}

/** A path whose inserted values are escaped: path`/threads/${id}`. */
export function path(parts, ...values) {
  return parts.reduce((before, part, n) => before + encodeURIComponent(values[n - 1]) + part);
}
