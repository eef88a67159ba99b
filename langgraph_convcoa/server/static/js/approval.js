// Approval: shows what a turn wants to do. The user approves, edits or rejects each part of it.

import { fill, h, icon, line } from "./dom.js";
import { markdown } from "./markdown.js";

const WORDS = {
  plan: "The plan",
  answer: "The answer",
  sub_question: "Sub-question",
  guess_answer: "Guess",
  action_input: "Input",
  optimized_question: "Question as understood",
  draft_answer: "Draft of the answer",
  answer_text: "Answer",
  chain: "Sub-questions",
  action: "Action",
};
const STEP = ["action", "sub_question", "guess_answer", "action_input"];

let forms = 0;

/** The form for a human-in-the-loop request. `decide` sends the decisions; `actions` are the actions to choose from. */
export function approval(request, { actions, decide }) {
  const asked = Array.isArray(request?.action_requests) ? request.action_requests : [];
  forms += 1;
  const parts = [];
  const button = h("button.button.primary", { type: "submit" });
  const name = () =>
    fill(
      button,
      new Set(parts.map((part) => part.choice)).size > 1
        ? "Send decisions"
        : { approve: "Approve", edit: "Send edit", reject: "Reject" }[parts[0]?.choice ?? "approve"],
    );
  asked.forEach((one, n) => parts.push(new Part(one, `approve-${forms}-${n}`, actions, name)));
  name();
  return h(
    "form.card.approval",
    {
      "aria-label": "Approval",
      on: {
        submit: (event) => (event.preventDefault(), (button.disabled = true), decide(parts.map((part) => part.decision()))),
      },
    },
    h("p.card-title", {}, "This turn waits for your approval"),
    parts.map((part) => part.element),
    h("div.row", {}, button),
  );
}

class Part {
  constructor(request, id, actions, changed) {
    Object.assign(this, { request, id, actions, changed, choice: "approve" });
    this.args = request.args && typeof request.args === "object" ? request.args : {};
    this.body = h("div.approval-body");
    const title = WORDS[request.name] ?? line(request.name, 80);
    const first = line(String(request.description ?? "").split("\n")[0], 400);
    const choice = (value, label) =>
      h(
        "label.choice",
        {},
        h("input", { type: "radio", name: id, value, checked: value === "approve", on: { change: () => this.choose(value) } }),
        h("span", {}, label),
      );
    this.element = h(
      "fieldset.request",
      {},
      h("legend", {}, title),
      first ? h("p.hint", { dir: "auto" }, first) : null,
      this.body,
      h(
        "div.choices",
        { role: "radiogroup", "aria-label": `Decision about ${title}` },
        choice("approve", "Approve"),
        choice("edit", "Edit"),
        choice("reject", "Reject"),
      ),
    );
    this.choose("approve");
  }

  choose(choice) {
    this.choice = choice;
    fill(this.body, choice === "edit" ? this.edit() : this.show(), choice === "reject" ? this.why() : null);
    this.changed();
  }

  show() {
    const told = Object.entries(this.args).filter(([, value]) => (Array.isArray(value) ? value.length : value));
    return h(
      "dl.facts",
      {},
      told.map(([name, value]) => [h("dt", {}, WORDS[name] ?? line(name, 60)), h("dd", {}, this.shown(name, value))]),
    );
  }

  shown(name, value) {
    if (Array.isArray(value)) {
      return h(
        "ol.plan",
        {},
        value.map((step) =>
          h(
            "li",
            {},
            h("bdi", {}, line(step.sub_question, 600)),
            " ",
            h("code", {}, line(step.action, 60)),
            step.guess_answer ? h("span.hint", {}, ` guess: ${line(step.guess_answer)}`) : null,
          ),
        ),
      );
    }
    if (name === "action_input") return h("pre.query", { tabindex: "0" }, h("code", {}, value));
    if (name === "answer") return h("div.prose", {}, markdown(String(value)));
    return h("span", { dir: "auto" }, line(value, 2000));
  }

  edit() {
    this.fields = {};
    return Object.entries(this.args).map(([name, value]) =>
      Array.isArray(value) ? this.editChain(name, value) : this.field(this.fields, name, value),
    );
  }

  field(fields, name, value, id = `${this.id}-${name}`) {
    const text = String(value ?? "");
    const rows = String(Math.min(8, Math.max(1, Math.ceil(text.length / 60), text.split("\n").length)));
    const input = h(`textarea${name === "action_input" ? ".mono" : ""}`, { id, rows, maxlength: "20000", dir: "auto" });
    input.value = text;
    fields[name] = () => input.value;
    return h("div.field", {}, h("label", { for: id }, WORDS[name] ?? line(name, 60)), input);
  }

  editChain(name, value) {
    const list = h("ol.plan.editing", { "aria-label": "Sub-questions" });
    let steps = [];
    const add = (step) => {
      const fields = {},
        id = `${this.id}-${steps.length}-${Math.random().toString(36).slice(2, 8)}`;
      const names = this.actions.includes(step.action) || !step.action ? this.actions : [step.action, ...this.actions];
      const select = h(
        "select",
        { id: `${id}-action` },
        names.map((one) => h("option", { value: one, selected: one === step.action }, one)),
      );
      fields.action = () => select.value;
      const entry = { fields };
      const drop = h(
        "button.icon-button",
        {
          type: "button",
          "aria-label": "Remove this sub-question",
          on: { click: () => (entry.element.remove(), (steps = steps.filter((other) => other !== entry))) },
        },
        icon("close"),
      );
      entry.element = h(
        "li",
        {},
        h("div.row", {}, h("div.field.grow", {}, h("label", { for: `${id}-action` }, "Action"), select), drop),
        STEP.slice(1).map((key) => this.field(fields, key, step[key], `${id}-${key}`)),
      );
      steps.push(entry);
      list.append(entry.element);
    };
    value.forEach(add);
    this.fields[name] = () => steps.map(({ fields }) => Object.fromEntries(STEP.map((key) => [key, fields[key]()])));
    return h(
      "div.field",
      {},
      h("p.label", {}, WORDS[name] ?? line(name, 60)),
      list,
      h("button.button", { type: "button", on: { click: () => add({ action: this.actions[0] }) } }, "Add a sub-question"),
    );
  }

  why() {
    this.reason = {};
    const field = this.field(this.reason, "message", "");
    field.querySelector("label").textContent = "Why (may stay empty)";
    return field;
  }

  decision() {
    if (this.choice === "reject") return { type: "reject", message: this.reason.message() };
    if (this.choice === "approve") return { type: "approve" };
    return {
      type: "edit",
      edited_action: {
        name: this.request.name,
        args: Object.fromEntries(Object.entries(this.fields).map(([name, value]) => [name, value()])),
      },
    };
  }
}
