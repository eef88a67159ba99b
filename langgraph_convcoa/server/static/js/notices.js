// What the page says beside the conversation: errors where they are seen, and short words for a screen reader.

import { at, fill, h, icon, line } from "./dom.js";

/** Show a message at the top, with buttons {label: what it does} in the place of one with its `key`; returns how to take it away. */
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

/** Take the message with this key away. */
export function dismiss(key) {
  for (const shown of [...at("notices").children]) if (shown.dataset.key === line(key)) shown.remove();
}

/** Show what a failed request said; a stopped one says nothing. */
export function failed(error, actions) {
  if (error.name === "AbortError") return;
  if (error.status === undefined) console.error(error);
  notice(error.status === undefined ? `The page failed: ${error.message}. Reload it.` : error.message, { actions });
}

/** Run something whose failure is shown. */
export async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    failed(error);
    return undefined;
  }
}

/** Have a screen reader say something, once it has nothing else to say. */
export function say(text) {
  const live = at("live");
  live.append(h("p", {}, line(text, 2000)));
  while (live.children.length > 20) live.firstChild.remove();
}

/** Empty what a screen reader would read again. */
export function hush() {
  fill(at("live"));
}
