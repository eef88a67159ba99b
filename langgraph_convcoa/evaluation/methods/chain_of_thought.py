"""Chain of thought: Wei et al. 2022, "Chain-of-Thought Prompting Elicits Reasoning in Large Language Models", section 2.

Without examples the reasoning is asked for by the trigger of Kojima et al. 2022, "Large Language Models are Zero-Shot
Reasoners", section 3; reasoning and answer come in one reply here, where the latter make two calls of it.
"""

from __future__ import annotations

from langgraph_convcoa.evaluation.methods.asking import Asking, as_method, last_line, short_answer
from langgraph_convcoa.evaluation.methods.kit import Kit, Method
from langgraph_convcoa.evaluation.methods.worked import WORKED
from langgraph_convcoa.evaluation.runs.answered import Outcome

INSTRUCTION = 'Reason about the question, then end with "So the answer is:" and the answer, as short as it can be.'
TRIGGER = "Let's think step by step."


def make(kit: Kit) -> Method:
    """Reason, then answer: 1 model call. A reply without "the answer is" is malformed; its last line is the answer."""

    async def answer(asking: Asking) -> Outcome:
        reply = await asking.reply(prompt(asking))
        found = short_answer(reply)
        asking.malformed += found is None
        return asking.outcome(found or last_line(reply))

    return as_method(kit, "chain-of-thought", answer)


def prompt(asking: Asking) -> str:
    """The prompt for a chain of thought: with the kit's examples, after two that show the reasoning; else with the trigger."""
    shown = ""
    if asking.kit.examples:
        worked = [f"Q: {w.question}\nA: {w.chain} So the answer is: {w.answer}." for w in WORKED[:2]]
        given = [f"Q: {question}\nA: So the answer is: {answer}." for question, answer in asking.kit.examples]
        shown = "\n\n".join([*worked, *given]) + "\n\n"
    return f"{INSTRUCTION}\n\n{shown}{asking.context}Q: {asking.turn.question}\nA: {TRIGGER}"
