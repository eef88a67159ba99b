// The empty conversation: a short introduction, the contents of the collection, and suggested questions.

import { fill, h, icon, line } from "./dom.js";
import { describe } from "./library.js";

const SUGGESTED = 3;
const WITH_A_MODEL =
  "Each question becomes a chain of sub-questions. Every guess is checked against the documents, one by one, and only what they support is answered, with its source.";
const WITHOUT =
  "Each question is looked up in the documents. The answer is their own sentences, word for word, each with its source.";

/** Show the welcome text in an element. `ask(question)` asks a suggested question. */
export async function welcome(place, library, ask) {
  const here = library.current();
  const suggestions = h("ul.suggestions", { "aria-label": "Questions to begin with" });
  const holds = here
    ? [h("strong", {}, h("bdi", {}, line(here.name, 60))), `: ${describe(here)}`]
    : "There are no documents yet: add files on the left, or drop them on this page.";
  const shown = h(
    "section.welcome",
    { "aria-label": "Welcome" },
    h("h2", {}, "Ask your documents"),
    h("p", {}, library.info.models.length ? WITH_A_MODEL : WITHOUT),
    h("p.holds", {}, holds),
    suggestions,
  );
  fill(place, shown);
  const titles = await library.titles();
  if (!shown.isConnected) return;
  const step = Math.max(1, Math.floor(titles.length / SUGGESTED));
  const chosen = titles.filter((_, n) => n % step === 0).slice(0, SUGGESTED);
  fill(
    suggestions,
    chosen
      .map((title) => `What is said about ${title}?`)
      .map((question) =>
        h(
          "li",
          {},
          h(
            "button.suggestion",
            { type: "button", on: { click: () => ask(question) } },
            icon("searching"),
            h("bdi", {}, question),
          ),
        ),
      ),
  );
}
