// The conversation in the middle: its rounds, the turn that runs, and how one is asked, stopped, resumed and decided about.

import { json, path } from "./api.js";
import { approval } from "./approval.js";
import { at, fill, h, line } from "./dom.js";
import { follow } from "./events.js";
import { attempt, dismiss, failed, hush, notice, say } from "./notices.js";
import { closePanel, tabTitle } from "./panels.js";
import { Turn, card } from "./turn.js";
import { welcome } from "./welcome.js";

const SHOWN = 30;
const LONGEST_TITLE = 80;
const LOST = "connection";
const READ_ONLY =
  "The documents of this conversation were deleted, or are not served any more: begin a new conversation to ask about others.";

/** The open conversation. `library` has the documents, `list()` reads the list of conversations anew. */
export class Conversation {
  constructor({ info, library, list }) {
    Object.assign(this, {
      info,
      library,
      list,
      id: null,
      title: "",
      asked: 0,
      controller: null,
      run: null,
      turn: null,
      opened: 0,
      without: null,
      last: undefined,
      before: "",
    });
    this.place = at("conversation");
    this.bottom = true;
    at("scroll").addEventListener(
      "scroll",
      () => {
        const { scrollTop, scrollHeight, clientHeight } = at("scroll");
        this.bottom = scrollHeight - scrollTop - clientHeight < 80;
      },
      { passive: true },
    );
    // Of the other tabs of this browser; a question of elsewhere is seen when this tab is used again.
    this.tabs = new BroadcastChannel("convcoa");
    this.tabs.addEventListener("message", ({ data }) => data === this.id && this.catchUp());
    window.addEventListener("focus", () => this.catchUp());
  }

  /** Show what was asked in this conversation elsewhere, and follow it while it runs. */
  async catchUp() {
    const { id, opened } = this;
    if (!id || this.busy) return;
    const thread = await json("GET", path`/convcoa/threads/${id}?rounds=1`).catch(() => null);
    if (!thread || this.busy || opened !== this.opened || id !== this.id) return;
    if (thread.run_id || thread.rounds?.at(-1)?.time !== this.last) this.open(id);
  }

  get busy() {
    return this.controller !== null;
  }

  /** Open a conversation, or a new one for null. A turn that runs goes on on the server. */
  async open(id) {
    this.leave();
    const opened = ++this.opened;
    this.id = id;
    this.rename("");
    fill(this.place);
    location.replace(id ? `#t=${encodeURIComponent(id)}` : "#");
    this.list();
    if (!id) return this.empty();
    let thread;
    try {
      thread = await json("GET", path`/convcoa/threads/${id}`);
    } catch (error) {
      if (opened !== this.opened) return undefined;
      return error.status === 404 ? this.gone() : failed(error, { "Try again": () => this.open(id) });
    }
    if (opened !== this.opened) return undefined;
    this.rename(thread.title || id);
    this.before = thread.before;
    const there = !thread.collection || (await this.library.has(thread.collection));
    if (opened !== this.opened) return undefined;
    if (!there) this.readOnly(thread.collection);
    else if (thread.collection) this.library.pick(thread.collection);
    this.showRounds(thread.rounds ?? []);
    if (!there) return this.endOfReading();
    if (thread.run_id) return this.join(thread);
    if (thread.unfinished || thread.waiting) this.settleTurn(this.newTurn(thread.unfinished), thread);
    else if (!thread.rounds?.length) this.empty();
    return undefined;
  }

  leave() {
    this.controller?.abort();
    this.controller = this.run = this.turn = null;
    this.asked = 0;
    this.last = undefined;
    this.before = "";
    this.busyNow(false);
    this.readOnly(null);
    dismiss(LOST);
    closePanel();
    hush();
  }

  /** Take no question where the collection of the conversation, given by its id, is not there; null: it is. */
  readOnly(without) {
    this.without = without;
    at("question").disabled = at("send").disabled = without !== null;
  }

  endOfReading() {
    this.place.append(card(READ_ONLY, { "New conversation": () => at("new-thread").click() }));
    this.toBottom();
  }

  rename(title) {
    this.title = title;
    fill(at("title"), h("bdi", {}, line(title || "New conversation", 200)));
    at("thread-menu").hidden = !this.id;
    tabTitle(title);
  }

  empty() {
    welcome(this.place, this.library, (question) => this.ask(question));
  }

  showRounds(rounds) {
    const first = Math.max(0, rounds.length - SHOWN);
    const show = (from, to) =>
      rounds.slice(from, to).map((round) => {
        const turn = this.makeTurn(round.question);
        turn.quiet = true;
        turn.finish(round);
        return turn.element;
      });
    const earlier = first
      ? h(
          "button.button",
          { type: "button", on: { click: () => earlier.replaceWith(...show(0, first)) } },
          `Show ${first} earlier`,
        )
      : null;
    fill(this.place, earlier, show(first));
    this.asked = rounds.length;
    this.last = rounds.at(-1)?.time;
    this.toBottom();
  }

  makeTurn(question) {
    return new Turn(question || "…", {
      collection: () => this.without ?? this.library.id,
      grew: () => this.bottom && this.toBottom(),
      replace: (turn, text) => this.replace(turn, text),
      rate: (turn, rating) => this.rate(turn, rating),
    });
  }

  newTurn(question) {
    const turn = this.makeTurn(question);
    if (!this.asked && !this.turn) fill(this.place);
    this.turn?.parts.after.replaceChildren();
    this.turn = turn;
    this.place.append(turn.element);
    this.toBottom();
    return turn;
  }

  toBottom() {
    at("scroll").scrollTop = at("scroll").scrollHeight;
    this.bottom = true;
  }

  /** Ask a question: a conversation begins with its first one. */
  async ask(question) {
    if (this.busy || !question.trim()) return;
    const controller = (this.controller = new AbortController());
    this.busyNow(true);
    const turn = this.newTurn(question);
    turn.start();
    try {
      await (this.id ? null : this.begin(question));
    } catch (error) {
      return this.over(turn, controller, error, question);
    }
    return this.follow(turn, controller, { body: this.body({ input: { question } }) }, question);
  }

  async begin(question) {
    const metadata = { title: line(question, LONGEST_TITLE) };
    if (this.library.id) metadata.collection = this.library.id;
    const thread = await json("POST", "/threads", { metadata });
    this.id = thread.thread_id;
    this.rename(metadata.title);
    history.replaceState(null, "", `#t=${encodeURIComponent(this.id)}`);
    this.list();
  }

  body(more) {
    return {
      assistant_id: "convcoa",
      stream_mode: ["messages-tuple", "custom"],
      on_disconnect: "continue",
      multitask_strategy: "reject",
      ...(this.info.models.length > 1 ? { context: { model: at("models").value } } : {}),
      ...more,
    };
  }

  /** Resume the turn that was interrupted, or with decisions the one that waits. */
  resume(turn, decisions = null) {
    if (this.busy) return undefined;
    const controller = (this.controller = new AbortController());
    this.busyNow(true);
    turn.start();
    const given = decisions ? { command: { resume: { decisions } } } : { input: null };
    return this.follow(turn, controller, { body: this.body(given) });
  }

  /** Store what a person thinks of an answer; resolves to whether it is. */
  rate(turn, rating) {
    return attempt(async () => {
      await json("POST", path`/convcoa/threads/${this.id}/rating`, { round: turn.number, rating });
      turn.rating = rating;
      return true;
    });
  }

  /** Ask in place of the last turn, which stays on the server until it is answered. */
  replace(old, question) {
    if (this.busy || !this.before) return undefined;
    const controller = (this.controller = new AbortController());
    this.busyNow(true);
    closePanel();
    const turn = (this.turn = this.makeTurn(question));
    turn.replaced = old;
    old.element.replaceWith(turn.element);
    turn.start();
    return this.follow(turn, controller, { body: this.body({ input: { question }, checkpoint_id: this.before }) }, question);
  }

  /** Show the turn that could not be replaced; an edited question can be sent again. */
  putBack(turn, question, round) {
    const old = turn.replaced;
    turn.element.replaceWith(old.element);
    turn.remove();
    this.turn = null;
    if (round && (round.question !== old.question || round.answer !== old.text)) {
      // Another tab has asked meanwhile.
      if (question !== old.question && !at("question").value) at("question").value = question;
      return this.open(this.id);
    }
    if (question !== old.question) old.edit(question);
    return say("The earlier answer is kept");
  }

  /** Watch a turn that was begun before this page was opened. */
  join(thread) {
    const controller = (this.controller = new AbortController());
    this.busyNow(true);
    const turn = this.newTurn(thread.unfinished);
    turn.start();
    this.run = thread.run_id;
    return this.follow(turn, controller, { run: thread.run_id });
  }

  async follow(turn, controller, start, question = "") {
    let problem = null;
    const seen = (event) => {
      if (event.event === "metadata") this.begun(event.data?.run_id);
      else if (event.event === "end") turn.done = event.data?.status === "success";
      else if (event.event === "error") problem = new Error(event.data?.message || event.data?.error || "The turn failed.");
      else turn.take(event);
    };
    const connection = (lost) =>
      lost ? notice("The connection is lost; connecting again …", { key: LOST, kind: "info" }) : dismiss(LOST);
    try {
      await follow(this.id, start, { seen, connection, signal: controller.signal });
    } catch (error) {
      return this.over(turn, controller, error, question);
    }
    return this.over(turn, controller, problem, question, true);
  }

  /** What a turn has become, as the store has it. */
  async over(turn, controller, problem, question, told = false) {
    // Another conversation was opened meanwhile.
    if (this.controller !== controller) return;
    dismiss(LOST);
    let thread = null;
    if (this.id) {
      try {
        thread = await json("GET", path`/convcoa/threads/${this.id}?rounds=1`);
      } catch (error) {
        problem = error;
      }
    }
    if (this.controller !== controller) return;
    this.controller = this.run = null;
    this.busyNow(false);
    if (problem?.status === 404 && !thread) return this.gone(question);
    if (thread) this.before = thread.before;
    const open = thread?.waiting || thread?.unfinished;
    if (turn.replaced && !turn.done && !open) {
      if (problem && problem.name !== "AbortError") this.tell(problem, told);
      return this.putBack(turn, question, thread?.rounds?.at(-1));
    }
    if (problem?.status === 409 && thread) {
      // Another tab asks: its turn is shown, and this question kept.
      this.keep(turn, question);
      this.tell(problem, told);
      return this.open(this.id);
    }
    if (problem && problem.name !== "AbortError") this.tell(problem, told);
    if (thread) this.settleTurn(turn, thread, !turn.done);
    else this.keep(turn, question);
    this.list();
  }

  tell(problem, told) {
    if (told) notice(`The turn failed: ${problem.message}`);
    else failed(problem);
  }

  /** Take back a question that never reached the server, so that it can be asked again. */
  keep(turn, question) {
    turn.remove();
    if (this.turn === turn) this.turn = null;
    if (question && !at("question").value) at("question").value = question;
    if (!this.place.children.length) this.empty();
  }

  settleTurn(turn, thread, wrong = false) {
    if (thread.waiting) {
      const actions = (this.info.actions ?? []).map((action) => action.name);
      turn.halt(approval(thread.waiting, { actions, decide: (decisions) => this.resume(turn, decisions) }));
      return say("The turn waits for your approval");
    }
    if (thread.unfinished) {
      const told = `The last question was not answered to the end: “${line(thread.unfinished, 200)}”`;
      turn.halt(card(told, { Resume: () => this.resume(turn) }));
      return say("Stopped. The turn can be resumed.");
    }
    const round = thread.rounds?.at(-1);
    // Where the turn left nothing behind, the last round is an earlier one.
    if (!round || (wrong && round.question !== turn.question)) {
      this.keep(turn, turn.question);
      return round && round.time !== this.last ? this.open(this.id) : undefined;
    }
    turn.finish(round);
    this.replaced(turn);
    this.last = round.time;
    this.tabs.postMessage(this.id);
    if (turn.asked) return say("Asked back: your next message answers it");
    const sources = turn.citations.length;
    return say(`Answered, ${sources} source${sources === 1 ? "" : "s"}`);
  }

  /** Count a turn; the title of a conversation of one question is that question. */
  async replaced(turn) {
    if (!turn.replaced) this.asked += 1;
    else if (this.asked === 1 && this.title === line(turn.replaced.question, LONGEST_TITLE)) {
      const title = line(turn.question, LONGEST_TITLE);
      this.rename(title);
      await attempt(() => json("PATCH", path`/threads/${this.id}`, { metadata: { title } }));
      this.list();
    }
    turn.replaced = null;
  }

  begun(run) {
    this.run = run ?? this.run;
    this.tabs.postMessage(this.id);
    if (at("stop").disabled) this.cancel();
  }

  /** Stop the turn that runs; what is done of it is kept. One that is not known yet is stopped when it is. */
  stop() {
    at("stop").disabled = true;
    if (this.run) this.cancel();
  }

  async cancel() {
    const { id, run, controller } = this;
    try {
      await json("POST", path`/threads/${id}/runs/${run}/cancel`, {});
    } catch (error) {
      if (error.status !== 404 && error.status !== 409) failed(error);
    }
    // The stream ends by itself; where it does not, it is left.
    setTimeout(() => controller.abort(), 3000);
  }

  busyNow(busy) {
    at("send").hidden = busy;
    at("stop").hidden = !busy;
    at("stop").disabled = false;
    this.place.setAttribute("aria-busy", String(busy));
  }

  /** The conversation is no longer there. */
  gone(question = "") {
    this.leave();
    const text = question || at("question").value;
    this.open(null);
    at("question").value = text;
    notice(
      "This conversation is no longer there: it was deleted, perhaps in another tab. A new one begins with your next question.",
      { key: "gone" },
    );
  }
}
