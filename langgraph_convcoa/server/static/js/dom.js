// Elements and text. Whatever comes from a document, a model or a person becomes a text node, never markup.

// What would steer a terminal, or turn the direction of the text after it: never shown.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;

/** A value as text to show. */
export function plain(value) {
  return String(value ?? "").replace(UNSEEN, "");
}

/** A value as text on one line, cut where it is long. */
export function line(value, longest = 300) {
  const text = plain(String(value ?? "").slice(0, longest * 4))
    .replace(/\s+/g, " ")
    .trim();
  return text.length > longest ? `${text.slice(0, longest - 1)}…` : text;
}

/** An element. `on` in the properties holds listeners; what is null or false is left out; children are elements or text. */
export function h(tag, properties = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name);
  if (classes.length) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(properties)) {
    if (key === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(key, value === true ? "" : plain(value));
    }
  }
  append(element, children);
  return element;
}

/** Add children: elements, text, or lists of both. */
export function append(element, children) {
  for (const child of [children].flat(5)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(...(child instanceof Node ? [child] : breakable(plain(child))));
  }
  return element;
}

/** A text, in which a word of thousands of letters may break at many places: to find one in it takes a browser minutes. */
function breakable(text) {
  if (!/\S{400}/.test(text)) return [text];
  const parts = text.replace(/\S{100}(?=\S)/gu, "$&\0").split("\0");
  return parts.flatMap((part, n) => (n ? [document.createElement("wbr"), part] : [part]));
}

/** Replace all that an element holds. */
export function fill(element, ...children) {
  element.replaceChildren();
  return append(element, children);
}

/** The element with this id; the page has it. */
export function at(id) {
  return document.getElementById(id);
}

/** The address of a web page, as the browser understands it; null where it is none. */
export function webAddress(text) {
  let url;
  try {
    url = new URL(text.trim());
  } catch {
    return null;
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") return null;
  // A name before an @ only makes one host look like another.
  url.username = url.password = "";
  return url.href;
}

/** A link that shows its address; a person opens it, and the page there learns nothing about this one. */
export function link(address) {
  return h("a", { href: address, target: "_blank", rel: "noopener noreferrer", class: "address" }, line(address, 200));
}

const SHAPES = {
  close: "M6 6l12 12M18 6L6 18",
  menu: "M4 7h16M4 12h16M4 17h16",
  more: "M5 11a1 1 0 1 1 0 2 1 1 0 0 1 0-2zM12 11a1 1 0 1 1 0 2 1 1 0 0 1 0-2zM19 11a1 1 0 1 1 0 2 1 1 0 0 1 0-2z",
  plus: "M12 5v14M5 12h14",
  send: "M12 19V6M6 11.5L12 5.5l6 6",
  stop: "M7 7h10v10H7z",
  kept: "M5 12.5l4.5 4.5L19 7.5",
  confirmed: "M4 12.5l3 3 5-6M12 15.5l1 1 7-8",
  corrected: "M4 20l1-4L16 5l3 3L8 19zM14 7l3 3",
  filled: "M12 5v14M5 12h14",
  partial: "M5 12h14M5 7h8M5 17h5",
  recalled: "M12 7v5l3.5 2M12 3.5a8.5 8.5 0 1 1-7.7 5M4 4v5h5",
  unsupported: "M9 9.2a3 3 0 1 1 4.2 2.8c-.8.4-1.2 1-1.2 2M12 17.5h.01",
  asked: "M4.5 5h15v10.5H12l-4.5 4v-4h-3zM12 12.8h.01M10.3 8.6a1.8 1.8 0 1 1 1.7 2.2",
  failed: "M7 7l10 10M17 7L7 17",
  searching: "M10.5 4a6.5 6.5 0 1 1 0 13 6.5 6.5 0 0 1 0-13zM20 20l-4.6-4.6",
  document: "M7 3.5h7l4 4v13H7zM14 3.5v4h4",
  chain: "M9 8H7a4 4 0 0 0 0 8h2M15 8h2a4 4 0 0 1 0 8h-2M8.5 12h7",
  back: "M19 12H5M11 6l-6 6 6 6",
  again: "M19 12a7 7 0 1 1-2-4.9L19.5 9.5M19.5 4.5v5h-5",
  thumb: "M8 11v8.5H4.5V11zM8 11l3.6-7a2 2 0 0 1 2.1 2.3L13.2 10H18a2 2 0 0 1 2 2.4l-1 5.4a2 2 0 0 1-2 1.7H8",
  copy: "M9 9h10v11H9zM5 15V4h10",
};

/** One of the page's own line drawings, which says nothing that is not also said in words. */
export function icon(name) {
  const space = "http://www.w3.org/2000/svg";
  const picture = document.createElementNS(space, "svg");
  picture.setAttribute("viewBox", "0 0 24 24");
  picture.setAttribute("class", "icon");
  picture.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(space, "path");
  path.setAttribute("d", SHAPES[name] ?? SHAPES.document);
  picture.append(path);
  return picture;
}
