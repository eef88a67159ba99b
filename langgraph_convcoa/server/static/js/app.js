// The page: it asks the server what it has, and puts the list, the documents and the conversation together.

import { json } from "./api.js";
import { Conversation } from "./conversation.js";
import { at, fill, h, icon, line } from "./dom.js";
import { Library } from "./library.js";
import { setUpLogin } from "./login.js";
import { failed } from "./notices.js";
import { drawer, setUpPanels } from "./panels.js";
import { Threads } from "./thread_list.js";

const MODEL = "convcoa-model";

async function start() {
  let info;
  try {
    info = await json("GET", "/convcoa/info");
  } catch (error) {
    return failed(error, { "Try again": start });
  }
  fill(at("model"), ["no model", line(info.models[0], 40)][info.models.length] ?? null);
  at("model").title = info.models.length ? "The model that plans and answers" : "Answers are taken from the documents word for word";
  offer(info.models);
  let conversation;
  const library = new Library({ info, chosen: (id) => chosen(library, conversation, id) });
  const threads = new Threads({
    open: (id) => conversation.open(id),
    current: () => conversation.id,
    changed: (title) => conversation.rename(title),
    gone: () => conversation.gone(),
  });
  conversation = new Conversation({ info, library, list: () => threads.load() });
  await library.load();
  library.changed = () => conversation.place.querySelector(".welcome") && conversation.empty();
  at("new-thread").addEventListener("click", () => (drawer(false), conversation.open(null), at("question").focus()));
  at("skip").addEventListener("click", (event) => (event.preventDefault(), at("question").focus()));
  addEventListener("hashchange", () => fromAddress() !== conversation.id && conversation.open(fromAddress()));
  setUpComposer(conversation);
  await conversation.open(fromAddress());
  if (matchMedia("(min-width: 760px)").matches) at("question").focus();
  return undefined;
}

/** Let a person choose among several models; the choice lasts as long as the tab. */
function offer(models) {
  const chosen = sessionStorage.getItem(MODEL);
  fill(
    at("models"),
    models.map((name) => h("option", { value: name, selected: name === chosen }, line(name, 60))),
  );
  at("models").hidden = models.length < 2;
  at("models").addEventListener("change", (event) => sessionStorage.setItem(MODEL, event.target.value));
}

/** The conversation that the address names. */
function fromAddress() {
  try {
    return new URLSearchParams(location.hash.slice(1)).get("t") || null;
  } catch {
    return null;
  }
}

/** A conversation is about one collection: another one begins another conversation. */
function chosen(library, conversation, id) {
  library.pick(id);
  if (conversation.id) conversation.open(null);
  else if (!conversation.busy) conversation.empty();
}

function setUpComposer(conversation) {
  const box = at("question");
  const grow = () => {
    box.style.height = "auto";
    box.style.height = `${Math.min(box.scrollHeight, 200)}px`;
  };
  const send = () => {
    const question = box.value.trim();
    if (!question || conversation.busy) return;
    box.value = "";
    grow();
    conversation.ask(question);
  };
  box.addEventListener("input", grow);
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  at("composer").addEventListener("submit", (event) => (event.preventDefault(), send()));
  at("stop").addEventListener("click", () => conversation.stop());
}

setUpPanels();
setUpLogin();
at("send").append(icon("send"));
at("stop").append(icon("stop"));
start();
