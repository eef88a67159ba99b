// The collections of documents: choosing one, making one, what is in it, and what comes in.

import { json, path } from "./api.js";
import { at, fill, h, icon, line } from "./dom.js";
import { attempt, notice, say } from "./notices.js";
import { ask, closePanel, openPanel } from "./panels.js";
import { shortSource } from "./source_panel.js";
import { Upload } from "./upload.js";

const AT_ONCE = 200;
const POLL = 2000;

/** The collections; `chosen(id)` is called when a person picks one. */
export class Library {
  constructor({ info, chosen }) {
    Object.assign(this, { info, chosen, list: [], id: null, suggestions: new Map() });
    this.upload = new Upload({ info, target: () => this.target(), done: () => this.load(), name: () => this.current()?.name });
    at("new-collection").append(icon("plus"));
    at("new-collection").addEventListener("click", () => this.create());
    at("show-documents").addEventListener("click", () => this.openDocuments());
    at("collection").addEventListener("change", (event) => this.chosen(event.target.value));
  }

  current() {
    return this.list.find((collection) => collection.id === this.id);
  }

  /** Whether files can be added to a collection. */
  accepts(collection) {
    return Boolean(collection) && (collection.accepts_files ?? !collection.read_only);
  }

  async load() {
    const list = await attempt(() => json("GET", "/convcoa/collections"));
    if (!list) return undefined;
    const [before, known] = [this.current(), JSON.stringify(this.list)];
    this.list = list;
    // What is polled and the same is not drawn again under a person's hands.
    if (known !== JSON.stringify(list)) {
      if (!this.current()) this.id = list[0]?.id ?? null;
      this.show();
      const now = this.current();
      if (before && now && (before.documents !== now.documents || before.status !== now.status)) this.suggestions.delete(now.id);
      this.changed?.();
    }
    clearTimeout(this.timer);
    if (list.some(({ status }) => ["indexing", "unavailable"].includes(status))) this.timer = setTimeout(() => this.load(), POLL);
    return list;
  }

  /** Whether a collection is there, as far as the server tells; one that is not known yet may be of another tab. */
  async has(id) {
    const among = (list) => list.some((collection) => collection.id === id);
    return among(this.list) || among((await this.load()) ?? [{ id }]);
  }

  pick(id) {
    if (this.list.some((collection) => collection.id === id)) this.id = id;
    this.show();
  }

  show() {
    const here = this.current();
    fill(
      at("collection"),
      this.list.map((collection) =>
        h("option", { value: collection.id, selected: collection.id === this.id }, line(collection.name, 60)),
      ),
    );
    at("collection").disabled = !this.list.length;
    at("show-documents").disabled = !here;
    fill(at("collection-state"), here ? describe(here) : "No documents yet: add files.");
    const taking = this.taking();
    fill(at("drop-name"), taking ? line(taking.name, 60) : "a new collection");
  }

  async create() {
    const name = await ask("New collection", { label: "Name", yes: "Create", longest: 80 });
    if (name) await this.made(name);
  }

  async made(name) {
    const collection = await attempt(() => json("POST", "/convcoa/collections", { name }));
    if (!collection) return null;
    await this.load();
    this.chosen(collection.id);
    say(`The collection ${name} is there: add files to it`);
    return collection.id;
  }

  /** The collection that takes files: the present one, or where that takes none, another. */
  taking() {
    return [this.current(), ...this.list].find((collection) => this.accepts(collection));
  }

  /** The id of the collection that takes files, where there is none of a new one; it becomes the present one. */
  async target() {
    const taking = this.taking();
    if (!taking) return this.made("My documents");
    if (taking.id !== this.id) this.chosen(taking.id);
    return taking.id;
  }

  /** Titles of documents of the present collection, to suggest questions from; a file's name says too little for one. */
  async titles() {
    const id = this.id;
    if (!id) return [];
    if (!this.suggestions.has(id)) {
      try {
        const documents = await json("GET", `${path`/convcoa/collections/${id}/documents`}?limit=${AT_ONCE}`);
        const titled = documents.filter((entry) => !isFileName(entry.title, entry.source));
        this.suggestions.set(id, [...new Set(titled.map((entry) => line(entry.title, 80)).filter(Boolean))]);
      } catch {
        return [];
      }
    }
    return this.suggestions.get(id);
  }

  openDocuments() {
    const here = this.current();
    const list = h("ul.documents", { "aria-label": "Documents" });
    const more = h("div.row");
    openPanel(
      line(here.name, 80),
      [
        h("p.hint", {}, describe(here)),
        h(
          "div.row",
          {},
          this.accepts(here)
            ? h("button.button", { type: "button", on: { click: () => at("files").click() } }, "Add files")
            : h("p.hint", {}, "These documents were given on the command line; files go to a collection of your own."),
          here.read_only
            ? null
            : h("button.button.danger", { type: "button", on: { click: () => this.remove(here) } }, "Delete the collection"),
        ),
        list,
        more,
      ],
      { kind: "documents" },
    );
    this.more(here, list, more, 0);
  }

  async more(here, list, place, offset) {
    const found = await attempt(() =>
      json("GET", `${path`/convcoa/collections/${here.id}/documents`}?limit=${AT_ONCE}&offset=${offset}`),
    );
    if (!found || !list.isConnected) return;
    // A server that gives all at once has given them.
    const fresh = found.slice(0, offset ? AT_ONCE : undefined);
    list.append(...fresh.map((entry) => this.document(here, entry)));
    if (!list.children.length) list.append(h("li.hint", {}, here.documents === null ? "They are not listed here." : "Nothing is in here yet."));
    const goesOn = found.length === AT_ONCE;
    fill(
      place,
      goesOn
        ? h(
            "button.button",
            { type: "button", on: { click: () => this.more(here, list, place, offset + AT_ONCE) } },
            "Show more",
          )
        : null,
    );
  }

  document(here, entry) {
    const name = line(entry.title || entry.source, 200);
    const told = [
      line(entry.source, 200) === name ? null : line(entry.source, 200),
      entry.kind ? line(entry.kind, 30) : null,
      count(entry.passages, "passage"),
    ]
      .filter(Boolean)
      .join(" · ");
    const drop = this.accepts(here)
      ? h(
          "button.icon-button",
          { type: "button", "aria-label": `Remove ${name}`, on: { click: () => this.drop(here, entry, item) } },
          icon("close"),
        )
      : null;
    const item = h(
      "li.document",
      {},
      icon("document"),
      h("div.grow", {}, h("p.document-title", { dir: "auto" }, name), h("p.hint", {}, h("bdi", {}, told))),
      drop,
    );
    return item;
  }

  async drop(here, entry, item) {
    const yes = await ask("Remove this document?", {
      text: `${line(entry.title || entry.source, 200)} is no longer searched. Answers that cite it stay.`,
      yes: "Remove",
      danger: true,
    });
    if (yes === null) return;
    const url = `${path`/convcoa/collections/${here.id}/documents`}?${new URLSearchParams({ source: entry.source })}`;
    const done = await attempt(async () => (await json("DELETE", url), true));
    if (done) (item.remove(), await this.load());
  }

  async remove(here) {
    const yes = await ask("Delete this collection?", {
      text: `${line(here.name, 80)} and its ${count(here.documents, "document")} are removed from this server. Its conversations can then only be read.`,
      yes: "Delete",
      danger: true,
    });
    if (yes === null) return;
    const done = await attempt(async () => (await json("DELETE", path`/convcoa/collections/${here.id}`), true));
    if (!done) return;
    closePanel();
    await this.load();
    this.chosen(this.id);
    notice(`The collection ${line(here.name, 80)} is deleted.`, { kind: "info" });
  }
}

/** Whether a title is only the name of the document's file, as it is or as the loaders make words of it. */
function isFileName(title, source) {
  const name = shortSource(source);
  return [line(source, 120), name, line(name.split(".")[0].replace(/[-_]+/g, " "))].includes(line(title, 120));
}

function count(number, word) {
  return number === null || number === undefined
    ? null
    : `${Number(number).toLocaleString("en")} ${word}${Number(number) === 1 ? "" : "s"}`;
}

/** What a collection holds, in a line. */
export function describe(collection) {
  const holds = [count(collection.documents, "document"), count(collection.passages, "passage")].filter(Boolean).join(", ");
  const state = { indexing: "being indexed", failed: "failed", unavailable: "not available" }[collection.status];
  return [holds, state, collection.message ? line(collection.message, 200) : null].filter(Boolean).join(" · ");
}
