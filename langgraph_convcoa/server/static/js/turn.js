// One question and its answer on the page: the chain while it runs, the verified text as it comes, and what it cites.

import { asksBack, chainView, steps, summary, usageLine } from "./chain.js";
import { append, at, fill, h, icon, line } from "./dom.js";
import { markdown } from "./markdown.js";
import { say } from "./notices.js";
import { closePanel, openPanel } from "./panels.js";
import { openSource, queryBlock, queryOf, shortSource } from "./source_panel.js";

/** The number of the mark behind a sentence that no evidence supports. */
const DOUBT = 9999;

/**
 * A turn. `collection()` names the documents its evidence is in; `grew` is called when it takes more room; `replace(turn, text)`
 * asks a question in its place; `rate(turn, rating)` stores what a person thinks of its answer.
 */
export class Turn {
  constructor(question, { collection, grew, replace, rate }) {
    Object.assign(this, {
      question,
      collection,
      grew,
      replace,
      rate,
      text: "",
      citations: [],
      evidence: [],
      chain: [],
      doubts: [],
      optimized: "",
      usage: null,
    });
    this.running = false;
    this.said = 0;
    this.parts = {
      question: h("div.question", { dir: "auto" }, h("h2", {}, question)),
      live: h("div.live-chain"),
      answer: h("div.answer.prose"),
      foot: h("footer.turn-foot"),
      after: h("div.after"),
    };
    const { live, answer, foot, after } = this.parts;
    this.element = h(
      "article.turn",
      { "aria-label": `Question: ${line(question, 120)}` },
      this.parts.question,
      live,
      answer,
      foot,
      after,
    );
  }

  /** Begin, or begin anew after a decision; what was shown of an answer before is written again. */
  start() {
    this.running = true;
    this.text = "";
    this.said = 0;
    this.asked = false;
    this.status = "Thinking";
    fill(this.parts.after);
    this.draw();
  }

  /** Take an event of the stream. */
  take({ event, data }) {
    if (!data) return;
    if (event === "custom") this.progress(data);
    if (event.startsWith("messages")) this.add(Array.isArray(data) ? data[0] : data);
    this.later();
  }

  progress(data) {
    if (data.type === "look") this.status = `Planning over ${data.found} piece${data.found === 1 ? "" : "s"} of evidence`;
    if (data.type === "plan") {
      this.optimized = data.optimized_question ?? "";
      this.chain = (data.sub_questions ?? []).map((text) => ({ sub_question: text, status: "planned" }));
      this.status = this.chain.length ? "Looking up the sub-questions" : "Checking the answer";
    }
    if (data.type === "answer") this.doubts = data.unsupported ?? [];
    if (data.type === "clarification") this.asked = true;
    if (data.type === "sub_question" && data.index >= 0 && data.index < 1000) {
      while (this.chain.length <= data.index) this.chain.push({ sub_question: "", status: "planned" });
      this.chain[data.index] = { ...this.chain[data.index], ...data };
    }
  }

  add(message) {
    if (!/^ai/i.test(message?.type ?? "")) return;
    const content = message.content ?? "";
    this.text += typeof content === "string" ? content : content.map((block) => block.text ?? "").join("");
    this.status = "";
  }

  /** Draw once for all events that came before the next frame. */
  later() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      if (this.running) this.draw();
    });
  }

  /** The end: what the store has kept of the turn. */
  finish(round) {
    this.running = false;
    const { answer: text = "", citations = [], evidence = [], chain = [], usage = null } = round;
    Object.assign(this, {
      text,
      citations: citations ?? [],
      evidence: evidence ?? [],
      doubts: round.unsupported ?? this.doubts,
      chain: chain ?? [],
      usage,
      number: round.number,
      rating: round.rating,
      optimized: round.optimized_question ?? this.optimized,
      asked: asksBack(chain ?? []),
    });
    this.draw();
  }

  /** The end of one that was stopped, has failed, or waits: `after` is what can be done about it. */
  halt(after) {
    this.running = false;
    this.text = "";
    this.draw();
    fill(this.parts.after, after);
    this.grew();
  }

  draw() {
    const { live, answer, foot } = this.parts;
    fill(live, this.running ? this.live() : null);
    // A mark that is not complete yet is not shown.
    const text = this.running ? this.text.replace(/\[\d*$/, "") : this.text;
    const end = this.running && text ? h("span.caret", { "aria-hidden": "true" }) : null;
    const shown = markdown(this.doubted(text), (number) => this.mark(number));
    if (end) (shown.at(-1)?.tagName === "P" ? shown.at(-1) : answer).append(end);
    answer.classList.toggle("asked", Boolean(this.asked));
    fill(answer, this.asked ? h("p.label", {}, "A question back: your next message answers it") : null, shown);
    fill(foot, this.running ? null : this.foot());
    if (this.panelOpen) this.openChain();
    this.speak(text);
    this.grew();
  }

  live() {
    const now = this.status
      ? h("p.status", {}, h("span.dots", { "aria-hidden": "true" }, h("i"), h("i"), h("i")), this.status)
      : null;
    return [this.chain.length ? steps(this.chain) : null, now, this.chain.length ? this.chainButton("Details") : null];
  }

  /** The text with a mark behind each sentence that no evidence supports. */
  doubted(text) {
    return this.doubts.reduce((all, one) => (one ? all.replace(one, () => `${one} [${DOUBT}]`) : all), text);
  }

  mark(number) {
    if (number === DOUBT) return h("span.doubt", { title: "No evidence supports this sentence" }, "not verified");
    if (this.running) return h("span.mark", {}, String(number));
    const citation = this.citations[number - 1];
    if (!citation) return null;
    return h(
      "button.mark",
      {
        type: "button",
        "aria-label": `Source ${number}: ${shortSource(citation.source)}`,
        on: { click: () => this.openSource(citation, number) },
      },
      String(number),
    );
  }

  foot() {
    if (!this.text) return null;
    const data = this.citations
      .map((citation, n) => ({ sql: queryOf(citation), number: n + 1, citation }))
      .filter((entry) => entry.sql);
    const figures = data.map(({ sql, number, citation }) =>
      h(
        "figure.figures",
        {},
        h("figcaption", {}, `Computed from ${shortSource(citation.source)} [${number}]`),
        queryBlock(sql.query),
      ),
    );
    const chips = this.citations.map((citation, n) =>
      h(
        "li",
        {},
        h(
          "button.chip",
          {
            type: "button",
            "aria-label": `Source ${n + 1}: ${shortSource(citation.source)}`,
            on: { click: () => this.openSource(citation, n + 1) },
          },
          h("span.chip-number", {}, String(n + 1)),
          h("bdi", {}, shortSource(citation.source)),
        ),
      ),
    );
    const button = (name, label, act, kind = "", more = {}) =>
      h(`button.icon-button${kind}`, { type: "button", "aria-label": label, title: label, on: { click: act }, ...more }, icon(name));
    const thumbs = ["up", "down"].map((way) =>
      button("thumb", way === "up" ? "Good answer" : "Bad answer", () => vote(way), `.${way}`, {
        "aria-pressed": String(this.rating === way),
      }),
    );
    const vote = async (way) => {
      if (!(await this.rate(this, this.rating === way ? "" : way))) return;
      ["up", "down"].forEach((one, n) => thumbs[n].setAttribute("aria-pressed", String(this.rating === one)));
    };
    return [
      figures,
      chips.length ? h("ul.chips", { "aria-label": "Sources" }, chips) : null,
      h(
        "div.foot-line",
        {},
        this.chainButton(summary(this.chain)),
        this.usage ? h("span.usage", {}, usageLine(this.usage)) : null,
        h(
          "div.tools",
          {},
          navigator.clipboard ? button("copy", "Copy the answer", () => this.copy()) : null,
          this.number ? thumbs : null,
          button("again", "Answer again", () => this.replace(this, this.question), ".last-only"),
          button("corrected", "Edit the question", () => this.edit(), ".last-only.edit-button"),
        ),
      ),
    ];
  }

  /** Show the question in a box, to be asked anew in other words. */
  edit(text = this.question) {
    const box = h("textarea", { "aria-label": "Edited question", rows: "2", maxlength: "20000", dir: "auto" });
    box.value = text;
    const send = () => box.value.trim() && (shut(), this.replace(this, box.value.trim()));
    const shut = () => fill(this.parts.question, h("h2", {}, this.question));
    const cancel = () => (shut(), this.parts.foot.querySelector(".edit-button")?.focus());
    const form = h(
      "form.edit",
      { "aria-label": "Edit the question", on: { submit: (event) => (event.preventDefault(), send()) } },
      box,
      h(
        "div.row.end",
        {},
        h("span.hint.grow", {}, "The new answer takes the place of this one."),
        h("button.button", { type: "button", on: { click: cancel } }, "Cancel"),
        h("button.button.primary", { type: "submit" }, "Ask"),
      ),
    );
    box.addEventListener("keydown", (event) => {
      const sends = event.key === "Enter" && !event.shiftKey && !event.isComposing;
      if (!sends && event.key !== "Escape") return;
      event.preventDefault();
      (sends ? send : cancel)();
    });
    fill(this.parts.question, form);
    box.focus();
  }

  chainButton(text) {
    return h("button.chain-button", { type: "button", on: { click: () => this.openChain() } }, icon("chain"), text);
  }

  /** Show the chain in the panel, where it is kept up to date while the turn runs. */
  openChain() {
    const view = () => chainView(this, { openEvidence: (id) => this.openEvidence(id), titleOf: (id) => this.titleOf(id) });
    if (this.panelOpen) {
      // In place, so that neither the focus nor the place in the panel is lost.
      const body = at("panel-body"),
        scrolled = body.scrollTop;
      fill(body, view());
      body.scrollTop = scrolled;
      return;
    }
    openPanel("How this was answered", view(), { kind: "chain", onClose: () => (this.panelOpen = false) });
    this.panelOpen = true;
  }

  openSource(citation, number, back = null) {
    openSource(citation, { collection: this.collection(), number, back });
  }

  /** Show a piece of evidence of the chain, from which one gets back to the chain. */
  openEvidence(id) {
    const n = this.citations.findIndex((citation) => citation.id === id);
    const known = this.citations[n] ?? this.evidence.find((entry) => entry.id === id) ?? { id, source: id, quote: "" };
    this.openSource(known, n >= 0 ? n + 1 : null, () => this.openChain());
  }

  titleOf(id) {
    const known = [...this.citations, ...this.evidence].find((entry) => entry.id === id);
    const [, name, part] = /^(.*?)(?:#(\d+))?(?:~\d+)?$/s.exec(id);
    return `${shortSource(known?.source ?? name)}${part ? `, part ${part}` : ""}`;
  }

  async copy() {
    const cited = this.citations.map((citation, n) => `[${n + 1}] ${citation.source}: ${citation.quote}`);
    await navigator.clipboard.writeText([this.text, ...cited].join("\n"));
    say("Copied");
  }

  /** Have a screen reader say the sentences that are complete. */
  speak(text) {
    if (this.quiet) return;
    const rest = text.slice(this.said);
    const end = this.running
      ? Math.max(
          ...[". ", "! ", "? ", "] ", ".\n", "]\n"]
            .map((stop) => rest.lastIndexOf(stop) + stop.length - 1)
            .filter((place, n) => place > 0 && n >= 0),
          0,
        )
      : rest.length;
    const words = rest
      .slice(0, end)
      .replace(/\[\d+\]|[*`#|]/g, "")
      .trim();
    if (end > 0 && words) say(words);
    this.said += Math.max(end, 0);
  }

  /** Take the turn off the page. */
  remove() {
    cancelAnimationFrame(this.frame);
    if (this.panelOpen) closePanel();
    this.element.remove();
  }
}

/** A card under a question: what happened, and what can be done. */
export function card(text, buttons, kind = "info") {
  return append(h(`div.card.${kind}`, { role: "group" }, h("p", { dir: "auto" }, line(text, 1000))), [
    h(
      "div.row",
      {},
      Object.entries(buttons).map(([label, act], n) =>
        h(`button.button${n ? "" : ".primary"}`, { type: "button", on: { click: act } }, label),
      ),
    ),
  ]);
}
