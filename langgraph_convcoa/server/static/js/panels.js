// The panel on the right, the drawer on the left, and dialogs: opening, closing, the Escape key, and the focus.

import { at, fill, h, icon, plain } from "./dom.js";

const narrow = matchMedia("(max-width: 759px)");
const covered = matchMedia("(max-width: 1099px)");
let opener = null;
let closed = null;
let before = null;

/** Open the panel with a title and content. `onClose` is called when it is gone; `back` shows the previous content. */
export function openPanel(title, content, { onClose = null, kind = "", back = null } = {}) {
  const panel = at("panel");
  const had = document.activeElement;
  if (panel.hidden || !panel.contains(had)) opener = had;
  closed?.();
  closed = onClose;
  before = back;
  at("panel-back").hidden = !back;
  panel.dataset.kind = kind;
  fill(at("panel-title"), title);
  fill(at("panel-body"), content);
  at("panel-body").scrollTop = 0;
  panel.hidden = false;
  cover();
  at("panel-title").focus({ preventScroll: true });
}

/** Close the panel. The focus returns to the element that opened it. */
export function closePanel() {
  const panel = at("panel");
  if (panel.hidden) return;
  panel.hidden = true;
  closed?.();
  closed = null;
  cover();
  (opener?.isConnected && opener.offsetParent ? opener : at("question")).focus();
  opener = null;
}

/** Open or close the list of conversations, if the window is too narrow to show it always. */
export function drawer(open) {
  const sidebar = at("sidebar");
  if (sidebar.classList.contains("open") === open) return;
  sidebar.classList.toggle("open", open);
  at("open-sidebar").setAttribute("aria-expanded", String(open));
  cover();
  if (narrow.matches) (open ? at("new-thread") : at("open-sidebar")).focus();
}

/** Make elements that a panel covers inert, so that they can be neither reached nor read. */
function cover() {
  const panel = !at("panel").hidden && covered.matches;
  const list = at("sidebar").classList.contains("open") && narrow.matches;
  at("main").inert = panel || list;
  at("sidebar").inert = panel || (narrow.matches && !list);
  at("panel").inert = list;
  document.body.classList.toggle("covered", panel || list);
  if (panel)
    for (const [name, value] of [
      ["role", "dialog"],
      ["aria-modal", "true"],
    ])
      at("panel").setAttribute(name, value);
  else for (const name of ["role", "aria-modal"]) at("panel").removeAttribute(name);
}

/** Set up the buttons, the keys and the widths at which panels cover the conversation. */
export function setUpPanels() {
  for (const [id, name] of [
    ["panel-back", "back"],
    ["close-panel", "close"],
    ["close-sidebar", "close"],
    ["open-sidebar", "menu"],
  ])
    at(id).append(icon(name));
  at("close-panel").addEventListener("click", closePanel);
  at("panel-back").addEventListener("click", () => before?.());
  at("open-sidebar").addEventListener("click", () => drawer(true));
  at("close-sidebar").addEventListener("click", () => drawer(false));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.defaultPrevented || document.querySelector("dialog[open]")) return;
    if (at("sidebar").classList.contains("open")) drawer(false);
    else closePanel();
  });
  document.body.addEventListener("click", (event) => {
    // A click beside a panel that covers the conversation.
    if (event.target === document.body || event.target === at("app")) (drawer(false), closePanel());
  });
  for (const query of [narrow, covered]) query.addEventListener("change", cover);
  cover();
}

/** Ask in a dialog. Resolves to the typed text, "" for a plain yes, or null if it was cancelled. */
export function ask(
  title,
  { text = null, label = "", value = "", type = "text", yes = "OK", danger = false, longest = 200, must = false } = {},
) {
  return new Promise((resolve) => {
    const input =
      label &&
      h("input", {
        type,
        value,
        id: "asked",
        maxlength: String(longest),
        autocomplete: type === "password" ? "current-password" : "off",
        dir: "auto",
        required: true,
      });
    const no = must ? null : h("button.button", { type: "button", on: { click: () => end(null) } }, "Cancel");
    const form = h(
      "form",
      { on: { submit: (event) => (event.preventDefault(), end(input ? input.value.trim() : "")) } },
      h("h2", { id: "dialog-title" }, title),
      text && h("p", {}, text),
      input && h("label", { for: "asked" }, label),
      input,
      h("div.row.end", {}, no, h(`button.button.${danger ? "danger" : "primary"}`, { type: "submit" }, yes)),
    );
    const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, form);
    const had = document.activeElement;
    const end = (result) => {
      dialog.close();
      dialog.remove();
      if (had?.isConnected) had.focus();
      resolve(result);
    };
    dialog.addEventListener("cancel", (event) => (event.preventDefault(), must || end(null)));
    document.body.append(dialog);
    dialog.showModal();
    if (input) input.select();
  });
}

/** Show a title in the browser's tab. */
export function tabTitle(title) {
  document.title = title ? `${plain(title).slice(0, 80)} · convcoa` : "convcoa";
}
