// The source of an answer: the passage with the quoted words marked, between what stands before and after it.

import { json, path } from "./api.js";
import { append, h, icon, line, link, webAddress } from "./dom.js";
import { markdown } from "./markdown.js";
import { openPanel } from "./panels.js";

const QUERY = /^\s*(?:select|with)\b/i;

/** A source in short: the file's own name, or a page's address. */
export function shortSource(source) {
  const text = String(source ?? "");
  return line(
    /^https?:\/\//i.test(text) ? text.replace(/^https?:\/\/(www\.)?/i, "") : text.split(/[\\/]/).at(-1) || text,
    120,
  );
}

/** The query and the result in the quote of a table's evidence; null for other evidence. */
export function queryOf(citation) {
  const quote = String(citation?.quote ?? "");
  if (!QUERY.test(quote)) return null;
  // The first " gives " that is not inside a string of the query.
  let quoted = "";
  for (let n = 0; n < quote.length; n += 1) {
    const here = quote[n];
    if (quoted) quoted = here === quoted ? "" : quoted;
    else if (here === "'" || here === '"') quoted = here;
    else if (here === " " && quote.startsWith(" gives ", n)) return { query: quote.slice(0, n), result: quote.slice(n + 7) };
  }
  return { query: quote, result: "" };
}

/** A query, set so that its clauses stand on lines of their own. */
export function queryBlock(query) {
  const lines = String(query).replace(/ (FROM|WHERE|GROUP BY|HAVING|ORDER BY|LIMIT|UNION(?: ALL)?) /g, "\n$1 ");
  return h("pre.query", { tabindex: "0", "aria-label": "Query" }, h("code", {}, lines));
}

/** Show a source in the panel. `citation` is {id, source, quote}; `number` is its [n], where the answer cites it. */
export async function openSource(citation, { collection, number = null, back = null }) {
  const heading = number ? `Source [${number}]` : "Evidence";
  const wait = h("p.hint", {}, "Loading the passage …");
  const shown = h("div.source", {}, head(citation), wait);
  openPanel(heading, shown, { kind: "source", back });
  let passage = null,
    problem = "";
  try {
    // A table's result is in no collection.
    passage = collection && !queryOf(citation) ? await passageOf(collection, citation) : null;
  } catch (error) {
    problem = error.message;
  }
  if (!shown.isConnected) return;
  shown.replaceChildren();
  append(shown, [
    head(citation, passage),
    passage?.pdf ? original(collection, passage) : null,
    problem ? h("p.notice.error", {}, line(problem, 600)) : null,
    passage ? whole(citation, passage) : alone(citation),
  ]);
  shown.querySelector("mark")?.scrollIntoView({ block: "center" });
}

/** The passage of a citation; null where the collection has none. */
async function passageOf(collection, { id, quote }) {
  // An id that two texts of a turn had got a number; the collection knows it without.
  for (const one of new Set([id, id.replace(/~\d+$/, "")])) {
    try {
      return await json("GET", `/convcoa/passages?${new URLSearchParams({ collection, id: one, quote: quote ?? "" })}`);
    } catch (error) {
      if (error.status !== 404) throw error;
    }
  }
  return null;
}

/** A link to the page of a PDF, which the browser's own viewer shows. */
function original(collection, { source, page }) {
  const address = `${path`/convcoa/collections/${collection}/files`}?${new URLSearchParams({ source })}`;
  return h(
    "p",
    {},
    h(
      "a.button",
      { href: page ? `${address}#page=${encodeURIComponent(page)}` : address, target: "_blank", rel: "noopener noreferrer" },
      icon("document"),
      page ? `Page ${line(page, 20)} of the PDF` : "The PDF",
    ),
  );
}

function head(citation, passage = null) {
  const name = line(passage?.title || shortSource(citation.source || citation.id), 300);
  const source = line(passage?.source || citation.source || citation.id, 300);
  const address = webAddress(String(citation.source ?? ""));
  const page = passage?.page ? h("span", {}, `page ${line(passage.page, 20)}`) : null;
  const where = address ? link(address) : source !== name ? h("bdi", {}, source) : null;
  return h(
    "header.source-head",
    {},
    h("h3", { dir: "auto" }, name),
    h(
      "p.hint",
      {},
      [where, page].filter(Boolean).flatMap((part, n) => (n ? [" · ", part] : [part])),
    ),
  );
}

function whole(citation, passage) {
  const sql = passage.query ? { query: passage.query } : queryOf(citation);
  if (sql)
    return [
      h("p.label", {}, "Query"),
      queryBlock(sql.query),
      h("p.label", {}, "Result"),
      h("div.prose", {}, markdown(passage.text)),
    ];
  const spans = Array.isArray(passage.spans) ? passage.spans : [];
  return [
    spans.length || !citation.quote
      ? null
      : [h("p.label", {}, "Quoted"), h("blockquote.quote", { dir: "auto" }, citation.quote)],
    h(
      "div.passage",
      { dir: "auto" },
      passage.before ? h("span.around", {}, passage.before) : null,
      h("span.found", {}, marked(String(passage.text ?? ""), spans)),
      passage.after ? h("span.around", {}, passage.after) : null,
    ),
  ];
}

/** What is known without the passage: the quote, or of a table's evidence the query and what it gave. */
function alone(citation) {
  const sql = queryOf(citation);
  if (sql)
    return [
      h("p.label", {}, "Query"),
      queryBlock(sql.query),
      h("p.label", {}, "Result"),
      h("p", { dir: "auto" }, sql.result || "none"),
    ];
  if (!citation.quote)
    return h(
      "p.hint",
      {},
      "This piece of evidence is in none of the present documents: it came from a table, from the web, or from a document that is no longer here.",
    );
  return [h("p.label", {}, "Quoted"), h("blockquote.quote", { dir: "auto" }, h("mark", {}, citation.quote))];
}

/** A text with spans marked; they count characters as Python does, so those beyond the basic plane count once. */
function marked(text, spans) {
  const characters = Array.from(text);
  const out = [];
  let from = 0;
  for (const [start, end] of [...spans].sort((one, other) => one[0] - other[0])) {
    if (start < from || end <= start || start >= characters.length) continue;
    out.push(characters.slice(from, start).join(""), h("mark", {}, characters.slice(start, end).join("")));
    from = end;
  }
  return [...out, characters.slice(from).join("")];
}
