// The login: asks once for a token if the server needs one, however many requests wait for it.

import { useLogin } from "./api.js";
import { ask } from "./panels.js";

let asking = null;

async function once() {
  let text = "This server asks for a token: the one that it was started with.";
  for (;;) {
    const token = await ask("Sign in", { text, label: "Token", type: "password", yes: "Sign in", longest: 2000, must: true });
    let response;
    try {
      response = await fetch("/convcoa/login", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ token }),
      });
    } catch {
      text = "The server does not answer. Is “convcoa serve” still running?";
      continue;
    }
    if (response.ok) return;
    text =
      response.status === 401 || response.status === 403
        ? "That token is not the server's: copy it again."
        : `The server answered ${response.status}: try again.`;
  }
}

/** Ask for a token whenever the server refuses a request because of a missing token. */
export function setUpLogin() {
  useLogin(() => (asking ??= once().finally(() => (asking = null))));
}
