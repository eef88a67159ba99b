// Turns a safe part of Markdown into elements: paragraphs, headings, lists, tables, quotes, code, emphasis, citation marks.
// Links are shown as text with their address, and images as words. HTML in the text never becomes HTML of the page.

import { h, line, link, webAddress } from "./dom.js";

const DEEPEST = 5;
const FARTHEST = 2000;
const FENCE = /^ {0,3}(```+|~~~+)/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*)$/;
const ITEM = /^( {0,12})([-*+]|\d{1,9}[.)])[ \t]+(.*)$/;

/** The elements of a text. `mark(number)` gives the element for the citation mark [number], or null if it cites nothing. */
export function markdown(text, mark = () => null) {
  return blocks(
    String(text ?? "")
      .slice(0, 250_000)
      .replace(/\r\n?/g, "\n")
      .split("\n"),
    mark,
    0,
  );
}

function blocks(lines, mark, depth) {
  const out = [];
  let n = 0;
  while (n < lines.length) {
    const text = lines[n];
    let found;
    if (!text.trim()) {
      n += 1;
    } else if ((found = FENCE.exec(text))) {
      const end = lines.findIndex((other, m) => m > n && other.trim().startsWith(found[1]));
      out.push(h("pre", { tabindex: "0" }, h("code", {}, lines.slice(n + 1, end < 0 ? lines.length : end).join("\n"))));
      n = end < 0 ? lines.length : end + 1;
    } else if ((found = HEADING.exec(text))) {
      out.push(h(`h${Math.min(found[1].length + 2, 6)}`, {}, inline(found[2], mark)));
      n += 1;
    } else if (rule(text)) {
      out.push(h("hr"));
      n += 1;
    } else if (text.trimStart().startsWith(">") && depth < DEEPEST) {
      const end = run(lines, n, (other) => other.trimStart().startsWith(">"));
      const inner = lines.slice(n, end).map((other) => other.trimStart().slice(1).replace(/^ /, ""));
      out.push(h("blockquote", {}, blocks(inner, mark, depth + 1)));
      n = end;
    } else if (text.includes("|") && n + 1 < lines.length && delimiters(lines[n + 1])) {
      const end = run(lines, n + 2, (other) => other.includes("|"));
      out.push(table(lines.slice(n, end), mark));
      n = end;
    } else if (ITEM.test(text) && depth < DEEPEST) {
      const end = run(
        lines,
        n,
        (other, m) =>
          ITEM.test(other) ||
          (other.trim() && /^ {2}/.test(other)) ||
          (m > n && !other.trim() && ITEM.test(lines[m + 1] ?? "")),
      );
      out.push(list(lines.slice(n, end), mark, depth));
      n = end;
    } else {
      const end = Math.max(
        n + 1,
        run(lines, n + 1, (other, m) => other.trim() && !begins(other, lines[m + 1])),
      );
      const parts = lines.slice(n, end).flatMap((other, m) => (m ? [h("br"), ...inline(other, mark)] : inline(other, mark)));
      out.push(h("p", { dir: "auto" }, parts));
      n = end;
    }
  }
  return out;
}

function run(lines, from, belongs) {
  let end = from;
  while (end < lines.length && belongs(lines[end], end)) end += 1;
  return end;
}

function begins(text, next) {
  return (
    FENCE.test(text) ||
    HEADING.test(text) ||
    ITEM.test(text) ||
    rule(text) ||
    text.trimStart().startsWith(">") ||
    (text.includes("|") && next !== undefined && delimiters(next))
  );
}

function rule(text) {
  const marks = text.replace(/[ \t]/g, "");
  return marks.length >= 3 && (/^-+$/.test(marks) || /^\*+$/.test(marks) || /^_+$/.test(marks));
}

function cells(text) {
  return text
    .trim()
    .replace(/^\|/, "")
    .replace(/\|$/, "")
    .split("|")
    .map((cell) => cell.trim());
}

function delimiters(text) {
  return text.includes("-") && cells(text).every((cell) => /^:?-+:?$/.test(cell));
}

function table(lines, mark) {
  const [head, , ...rows] = lines.map(cells);
  const number = head.map((_, n) => rows.length > 0 && rows.every((row) => /^[-+$€£]?[\d.,]+\s?%?$/.test(row[n] ?? "")));
  const row = (tag, texts) =>
    head.map((_, n) =>
      h(tag, { class: number[n] ? "number" : null, scope: tag === "th" ? "col" : null }, inline(texts[n] ?? "", mark)),
    );
  const body = rows.map((texts) => h("tr", {}, row("td", texts)));
  return h(
    "div.table",
    { tabindex: "0", role: "region", "aria-label": "Table" },
    h("table", {}, h("thead", {}, h("tr", {}, row("th", head))), h("tbody", {}, body)),
  );
}

function list(lines, mark, depth) {
  const first = ITEM.exec(lines[0]);
  const indent = first[1].length;
  const items = [];
  for (const text of lines) {
    const found = ITEM.exec(text);
    if (found && found[1].length <= indent + 1) items.push([found[3]]);
    else items.at(-1).push(text.replace(new RegExp(`^ {1,${indent + 2}}`), ""));
  }
  const ordered = /\d/.test(first[2]);
  const inner = items.map(([head, ...more]) =>
    h("li", { dir: "auto" }, inline(head, mark), more.length ? blocks(more, mark, depth + 1) : []),
  );
  if (!ordered) return h("ul", {}, inner);
  const start = parseInt(first[2], 10);
  return h(start + items.length > 100 ? "ol.wide" : "ol", { start: String(start) }, inner);
}

// Characters and words at which special markup may begin.
const STARTS = /[\\`*_![<]|https?:\/\//g;

/** The nodes of a line of text. */
export function inline(text, mark = () => null, depth = 0) {
  const out = [];
  let from = 0,
    place;
  const starts = new RegExp(STARTS);
  while ((place = starts.exec(text))) {
    const found = special(text, place.index, mark, depth);
    if (!found) {
      starts.lastIndex = place.index + 1;
      continue;
    }
    // A citation mark stays on the line of the word before it.
    const before = text.slice(from, place.index);
    if (before) out.push(found.cites ? before.replace(/ $/, "\u00a0") : before);
    out.push(...found.nodes);
    from = starts.lastIndex = found.end;
  }
  if (from < text.length) out.push(text.slice(from));
  return out;
}

function special(text, n, mark, depth) {
  const here = text[n];
  if (here === "\\") return /[\\`*_{}[\]()#+\-.!|<>~]/.test(text[n + 1] ?? "") ? { nodes: [text[n + 1]], end: n + 2 } : null;
  if (here === "`") return code(text, n);
  if (here === "*" || here === "_") return depth < DEEPEST ? emphasis(text, n, mark, depth) : null;
  if (here === "!") return text[n + 1] === "[" ? linked(text, n + 1, true) : null;
  if (here === "[") return citation(text, n, mark) ?? linked(text, n, false);
  const address = /^<?(https?:\/\/[^\s<>"')\]]{1,1500})/.exec(text.slice(n, n + FARTHEST));
  return address ? shownAddress(text, n, address) : null;
}

function close(text, what, from) {
  const end = text.slice(from, from + FARTHEST).indexOf(what);
  return end < 0 ? -1 : from + end;
}

function code(text, n) {
  const ticks = /^`{1,8}/.exec(text.slice(n, n + 8))[0];
  const end = close(text, ticks, n + ticks.length);
  return end < 0 ? null : { nodes: [h("code", {}, text.slice(n + ticks.length, end).trim())], end: end + ticks.length };
}

function emphasis(text, n, mark, depth) {
  const one = text[n],
    two = text[n + 1] === one;
  const ticks = two ? one + one : one;
  const from = n + ticks.length;
  if (!text[from] || /\s/.test(text[from]) || (one === "_" && /\w/.test(text[n - 1] ?? ""))) return null;
  const end = close(text, ticks, from + 1);
  if (end < 0 || /\s/.test(text[end - 1]) || (one === "_" && /\w/.test(text[end + ticks.length] ?? ""))) return null;
  return { nodes: [h(two ? "strong" : "em", {}, inline(text.slice(from, end), mark, depth + 1))], end: end + ticks.length };
}

function citation(text, n, mark) {
  const found = /^\[(\d{1,4})\](?!\()/.exec(text.slice(n, n + 7));
  const node = found && mark(Number(found[1]));
  return node ? { nodes: [node], end: n + found[0].length, cites: true } : null;
}

function linked(text, n, picture) {
  const middle = close(text, "](", n + 1);
  const end = middle < 0 ? -1 : close(text, ")", middle + 2);
  if (end < 0) return null;
  const words = text.slice(n + 1, middle),
    target = text
      .slice(middle + 2, end)
      .trim()
      .split(/\s/)[0];
  const address = webAddress(target);
  const label = picture ? `image: ${words}` : words;
  const shown = address ? link(address) : line(target, 200);
  const nodes = words.trim() === target || !words.trim() ? [shown] : [label, " (", shown, ")"];
  return { nodes, end: end + 1 };
}

function shownAddress(text, n, found) {
  const angle = found[0].startsWith("<");
  const words = angle ? found[1] : found[1].replace(/[.,;:!?]+$/, "");
  const address = webAddress(words);
  const end = n + (angle ? 1 : 0) + words.length;
  return address ? { nodes: [link(address)], end: angle && text[end] === ">" ? end + 1 : end } : null;
}
