// The list of conversations, and what can be done with the one that is open: rename, export, delete.

import { json, path } from "./api.js";
import { at, fill, h, icon, line } from "./dom.js";
import { attempt, say } from "./notices.js";
import { ask, drawer } from "./panels.js";

const LISTED = 200;
const TYPING = 300;

/** What a conversation is called: its title, else its id. */
export function titleOf(thread) {
  return line(thread.metadata?.title || thread.thread_id, 120) || "Untitled";
}

/** A time as short as it can be: the hour of today, else the day. */
export function shortTime(text, now = new Date()) {
  const time = new Date(text);
  if (Number.isNaN(time.getTime())) return "";
  if (time.toDateString() === now.toDateString())
    return time.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  const year = time.getFullYear() === now.getFullYear() ? undefined : "numeric";
  return time.toLocaleDateString("en-GB", { day: "numeric", month: "short", year });
}

/** A text with the words of a search marked. */
function found(text, words) {
  const parts = words.split(/\s+/).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return text.split(new RegExp(`(${parts.join("|")})`, "i")).map((part, n) => (n % 2 ? h("mark", {}, part) : part));
}

/** The list; `open(id)` opens a conversation, `current()` is the open one's id. */
export class Threads {
  constructor({ open, current, changed, gone }) {
    Object.assign(this, { open, current, changed, gone, list: [] });
    this.menu = at("thread-actions");
    this.button = at("thread-menu");
    this.button.append(icon("more"));
    this.button.addEventListener("click", () => this.toggle(this.menu.hidden));
    this.menu.addEventListener("click", (event) => event.target.dataset.do && this.act(event.target.dataset.do));
    this.menu.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("click", (event) => event.target.closest(".menu-place") || this.toggle(false, false));
    document.addEventListener("visibilitychange", () => document.hidden || this.load());
    at("search").addEventListener("input", () => {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.load(), TYPING);
    });
  }

  /** Read the list, or with words in the box what they are found in. */
  async load() {
    const asked = (this.asked = (this.asked ?? 0) + 1);
    const words = at("search").value.trim();
    const found = await attempt(() =>
      words
        ? json("GET", `/convcoa/threads?${new URLSearchParams({ words })}`)
        : json("POST", "/threads/search", { limit: LISTED, offset: 0 }),
    );
    // A later question may be answered before.
    if (!found || asked !== this.asked) return;
    this.show(words ? found.threads : found, words);
    if (!words) return;
    if (!found.complete) at("threads").append(h("li.hint", {}, "Older conversations were not searched."));
    say(`${found.threads.length} conversations found`);
  }

  show(list, words = "") {
    if (!words) this.list = list;
    const now = new Date();
    const item = (thread) => {
      const here = thread.thread_id === this.current();
      const state = { busy: "running", interrupted: "waits" }[thread.status];
      return h(
        "li",
        {},
        h(
          "button.thread",
          {
            type: "button",
            "aria-current": here ? "page" : null,
            on: { click: () => (drawer(false), this.open(thread.thread_id)) },
          },
          h("bdi.thread-title", {}, titleOf(thread)),
          h("span.thread-time", {}, state ?? shortTime(thread.updated_at, now)),
          thread.excerpt ? h("span.excerpt", {}, found(line(thread.excerpt, 200), words)) : null,
        ),
      );
    };
    fill(at("threads"), list.length ? list.map(item) : h("li.hint", {}, words ? "Nothing is found" : "None yet"));
  }

  toggle(open, focus = true) {
    if (this.menu.hidden !== open) return;
    this.menu.hidden = !open;
    this.button.setAttribute("aria-expanded", String(open));
    if (focus) (open ? this.menu.firstElementChild : this.button).focus();
  }

  key(event) {
    const items = [...this.menu.children];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) items[(items.indexOf(document.activeElement) + step + items.length) % items.length].focus();
    if (event.key === "Escape" || event.key === "Tab") this.toggle(false);
    if (step || event.key === "Escape") event.preventDefault();
  }

  async act(what) {
    this.toggle(false);
    const id = this.current();
    if (what === "rename") await this.rename(id);
    else if (what === "delete") await this.remove(id);
    else await attempt(() => this.download(id, what));
  }

  async rename(id) {
    const known = this.list.find((thread) => thread.thread_id === id);
    const title = await ask("Rename the conversation", { label: "Title", value: known ? titleOf(known) : "", yes: "Rename" });
    if (!title) return;
    const done = await this.checked(id, () => json("PATCH", path`/threads/${id}`, { metadata: { title } }));
    if (!done) return;
    this.changed(title);
    say(`Renamed to ${title}`);
    await this.load();
  }

  async remove(id) {
    if (
      (await ask("Delete this conversation?", {
        text: "Its questions and answers are gone for good; the documents stay.",
        yes: "Delete",
        danger: true,
      })) === null
    )
      return;
    if (!(await this.checked(id, async () => (await json("DELETE", path`/threads/${id}`), true)))) return;
    this.open(null);
    say("Deleted");
    await this.load();
  }

  /** Do something with a conversation that may have been deleted meanwhile. */
  async checked(id, work) {
    try {
      return await work();
    } catch (error) {
      if (error.status !== 404) return attempt(() => Promise.reject(error));
      this.gone(id);
      return null;
    }
  }

  async download(id, format) {
    await this.checked(id, async () => {
      await json("GET", path`/convcoa/threads/${id}?rounds=1`);
      const anchor = h("a", { href: `${path`/convcoa/threads/${id}/export`}?format=${format}`, download: "" });
      anchor.click();
      return true;
    });
  }
}
