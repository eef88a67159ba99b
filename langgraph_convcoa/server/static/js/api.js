// Requests to the server of this page: JSON both ways, errors that say what to do, and the login where a token is asked for.

/** A request that failed; `status` is 0 where the server was not reached. */
export class RequestError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

let login = null;

/** Say who asks for the token; it resolves once the server has taken one. */
export function useLogin(ask) {
  login = ask;
}

/** The error that a response tells of. */
export async function failure(response) {
  let detail = "";
  try {
    const told = await response.json();
    detail = typeof told.detail === "string" ? told.detail : (told.message ?? "");
  } catch {
    // No JSON: a proxy speaks.
  }
  return new RequestError(
    response.status,
    detail || `The server answered ${response.status}: try again, or look at its terminal.`,
  );
}

/** A request whose response is good; `body`, where given, is sent as JSON. */
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

/** A request's result. */
export async function json(method, path, body, options) {
  const response = await send(method, path, body, options);
  return response.status === 204 ? null : response.json();
}

/** A path with what was put into it escaped: path`/threads/${id}`. */
export function path(parts, ...values) {
  return parts.reduce((before, part, n) => before + encodeURIComponent(values[n - 1]) + part);
}
