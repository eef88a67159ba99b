// The chain of a turn: each sub-question with its guess, status, evidence, and the path to the evidence.

import { h, icon, line } from "./dom.js";

/** The meaning of each status of a sub-question; the statuses are the same on the command line and in the output. */
export const MEANINGS = {
  kept: "the evidence supports the guess",
  confirmed: "the verifier refused it, and the model that read the evidence again says that it holds",
  corrected: "the evidence says something else than the guess, and that is the answer",
  filled: "there was no guess, and the evidence gave the answer",
  partial: "the evidence holds only the nearest fact, which is the answer",
  recalled: "an earlier round of this conversation had found it",
  asked: "nothing settles which one the question means, and the answer asks",
  unsupported: "the evidence holds no answer",
  failed: "it could not be looked up",
};
// The words for a chain without guesses, in which nothing is kept or filled.
const WITHOUT_GUESSES = { filled: "answered", partial: "answered in part", unsupported: "not answered" };
const RUNNING = { planned: "waiting", searching: "searching", found: "found" };

/** A status as an icon, a colour and a word. */
export function badge(status) {
  const known = status in MEANINGS;
  const word = known ? status : (RUNNING[status] ?? "waiting");
  return h(
    `span.badge.${known ? status : "running"}`,
    { title: known ? MEANINGS[status] : null },
    icon(known ? status : "searching"),
    word,
  );
}

/** Whether the answer is a clarifying question. */
export function asksBack(chain) {
  return chain.some((item) => item.status === "asked");
}

/** The statuses of the sub-questions in one line: "3 sub-questions: 2 kept, 1 corrected", "1 sub-question: answered". */
export function summary(chain) {
  if (!chain.length) return "answered from one retrieval";
  if (asksBack(chain)) return "asked back";
  const words = chain.some((item) => item.guess_answer) ? {} : WITHOUT_GUESSES;
  const counts = {};
  for (const item of chain) counts[line(item.status, 20)] = (counts[line(item.status, 20)] ?? 0) + 1;
  const told = Object.entries(counts).map(([status, count]) => [count, Object.hasOwn(words, status) ? words[status] : status]);
  return chain.length === 1
    ? `1 sub-question: ${told[0][1]}`
    : `${chain.length} sub-questions: ${told.map((one) => one.join(" ")).join(", ")}`;
}

/** A short list of the sub-questions, for a turn that is running. */
export function steps(chain) {
  return h(
    "ol.steps",
    { "aria-label": "Sub-questions" },
    chain.map((item) => h("li", {}, badge(item.status), h("bdi.step-question", {}, line(item.sub_question)))),
  );
}

/** The whole chain. `openEvidence(id)` shows a piece of evidence; `titleOf(id)` is its title. */
export function chainView(turn, { openEvidence, titleOf }) {
  const plan =
    turn.optimized && line(turn.optimized) !== line(turn.question)
      ? h("p.understood", {}, h("span.label", {}, "Understood as"), h("bdi", {}, line(turn.optimized, 600)))
      : null;
  const items = turn.chain.map((item, n) => step(item, n, openEvidence, titleOf));
  const none = turn.chain.length
    ? null
    : h(
        "p.hint",
        {},
        turn.running ? "The plan is being written." : "There was no sub-question: one retrieval on the question itself.",
      );
  const legend = h(
    "details.legend",
    {},
    h("summary", {}, "What the words mean"),
    h(
      "dl",
      {},
      Object.entries(MEANINGS).map(([status, meaning]) => [h("dt", {}, badge(status)), h("dd", {}, meaning)]),
    ),
  );
  return [plan, none, h("ol.chain", {}, items), doubts(turn), legend];
}

function step(item, n, openEvidence, titleOf) {
  const settled = item.status in MEANINGS;
  const score =
    settled && item.status !== "failed" ? h("span.score", {}, `score ${Number(item.score ?? 0).toFixed(2)}`) : null;
  const changed = item.status === "corrected" && item.guess_answer;
  return h(
    "li.step",
    { "data-status": line(item.status, 20) },
    h(
      "div.step-head",
      {},
      h("span.number", { "aria-hidden": "true" }, String(n + 1)),
      badge(item.status),
      score,
      h("code.action", {}, line(item.action, 60)),
    ),
    h("p.step-title", { dir: "auto" }, line(item.sub_question, 600)),
    h(
      "dl.facts",
      {},
      fact(
        "Guess",
        item.guess_answer
          ? h(changed ? "del" : "span", { dir: "auto" }, line(item.guess_answer, 1000))
          : h("span.none", {}, "none"),
      ),
      item.answer ? fact("Answer", h(changed ? "ins" : "span", { dir: "auto" }, line(item.answer, 1000))) : null,
      query(item)
        ? fact("Query", h("pre", { tabindex: "0" }, h("code", {}, item.action_input)))
        : item.action_input
          ? fact("Input", line(item.action_input, 600))
          : null,
      item.reason ? fact("Why", line(item.reason, 600)) : null,
      evidence(item, openEvidence, titleOf),
    ),
    paths(item),
  );
}

function fact(name, value) {
  return [h("dt", {}, name), h("dd", {}, value)];
}

function query(item) {
  return /^\s*(select|with)\b/i.test(item.action_input ?? "");
}

function evidence(item, openEvidence, titleOf) {
  const ids = Array.isArray(item.evidence) ? item.evidence : [];
  if (!ids.length) return null;
  const pieces = ids
    .slice(0, 50)
    .map((id) =>
      h(
        "li",
        {},
        h(
          "button.evidence",
          { type: "button", on: { click: () => openEvidence(String(id)) } },
          icon("document"),
          h("bdi", {}, line(titleOf(String(id)), 120)),
        ),
      ),
    );
  return fact("Evidence", h("ul.pieces", {}, pieces));
}

/** The paths along the evidence graph: from the question through titles and names to a passage. */
function paths(item) {
  const ways = Object.values(item.paths ?? {}).filter(Array.isArray);
  if (!ways.length) return null;
  const way = (names) =>
    h(
      "ol.way",
      {},
      names.slice(0, 30).map((name) => h("li", {}, h("bdi", {}, line(name, 120)))),
    );
  return h("div.ways", {}, h("p.label", {}, "Path along the evidence graph"), ways.slice(0, 20).map(way));
}

function doubts(turn) {
  if (!turn.doubts?.length) return null;
  return h(
    "div.doubts",
    {},
    h("p.label", {}, "Not in the words of its evidence"),
    h(
      "ul",
      {},
      turn.doubts.map((sentence) => h("li", { dir: "auto" }, line(sentence, 600))),
    ),
  );
}

/** What a turn cost, in one short line. */
export function usageLine(usage) {
  const many = (count, word) => `${Number(count ?? 0).toLocaleString("en")} ${word}${Number(count) === 1 ? "" : "s"}`;
  const tokens = Number(usage.input_tokens ?? 0) + Number(usage.output_tokens ?? 0);
  const parts = [
    many(usage.llm_calls, "model call"),
    tokens ? many(tokens, "token") : null,
    usage.recalled ? `${usage.recalled} recalled` : null,
    `${Number(usage.seconds ?? 0).toFixed(1)} s`,
  ];
  return parts.filter(Boolean).join(" · ");
}
