// Messages outside of the conversation: visible errors, and short texts for a screen reader.

import { at, fill, h, icon, line } from "./dom.js";

/** Show a message at the top, with buttons {label: function}. Replaces one with the same `key`. Returns its remover. */
export function notice(text, { key = text, actions = {}, kind = "error" } = {}) {
  dismiss(key);
  const shown = h(`div.notice.${kind}`, { "data-key": line(key) }, h("p", {}, line(text, 600)));
  const take = () => shown.remove();
  for (const [label, act] of Object.entries(actions)) {
    shown.append(h("button.button", { type: "button", on: { click: () => (take(), act()) } }, label));
  }
  shown.append(h("button.icon-button", { type: "button", "aria-label": "Dismiss", on: { click: take } }, icon("close")));
  at("notices").append(shown);
  return take;
}

/** Remove the message with this key. */
export function dismiss(key) {
  for (const shown of [...at("notices").children]) if (shown.dataset.key === line(key)) shown.remove();
}

/** Show the error of a failed request. A stopped request shows nothing. */
export function failed(error, actions) {
  if (error.name === "AbortError") return;
  if (error.status === undefined) console.error(error);
  notice(error.status === undefined ? `The page failed: ${error.message}. Reload it.` : error.message, { actions });
}

/** Run an async function, and show its error if it fails. */
export async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    failed(error);
    return undefined;
  }
}

/** Let a screen reader say a text when it has finished speaking. */
export function say(text) {
  const live = at("live");
  live.append(h("p", {}, line(text, 2000)));
  while (live.children.length > 20) live.firstChild.remove();
}

/** Remove the texts for the screen reader, so that it does not read them again. */
export function hush() {
  fill(at("live"));
}
