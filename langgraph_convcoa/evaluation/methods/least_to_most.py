"""Least-to-most: Zhou et al. 2022, "Least-to-Most Prompting Enables Complex Reasoning in Large Language Models", section 2."""

from __future__ import annotations

import re

from langgraph_convcoa.evaluation.methods.asking import Asking, as_method
from langgraph_convcoa.evaluation.methods.kit import Kit, Method
from langgraph_convcoa.evaluation.methods.worked import WORKED
from langgraph_convcoa.evaluation.runs.answered import Outcome

DECOMPOSE = "Which simpler questions must be answered first to answer the last question? List them in order, numbered."
SOLVE = "Answer the last question; use the answers before it. Be brief, and write only the answer."
_ITEM = re.compile(r"^\s*(?:\d+\s*[.):]|[-*•])\s*(\S.*)$")


def make(kit: Kit) -> Method:
    """Decompose, then solve one sub-problem after another, the question itself last: n + 2 model calls for n sub-problems.

    A decomposition without a list is malformed, and the question is solved at once. An empty answer is malformed too.
    """
    example = "\n".join(f"{n}. {question}" for n, (question, _) in enumerate(WORKED[0].steps, 1))
    shown = f"Question: {WORKED[0].question}\n{example}"

    async def answer(asking: Asking) -> Outcome:
        question, context = asking.turn.question, asking.context
        reply = await asking.reply(f"{DECOMPOSE}\n\n{shown}\n\n{context}Question: {question}\n")
        problems = listed(reply)[: kit.max_steps]
        asking.malformed += not problems
        solved, found = "", ""
        for problem in [*problems, question]:
            asked = f"{SOLVE}\n\n{context}{solved}Question: {problem}\nAnswer:"
            found = (await asking.reply(asked)).split("\nQuestion:", 1)[0].removeprefix("Answer:").strip()
            asking.malformed += not found
            solved += f"Question: {problem}\nAnswer: {found}\n"
        return asking.outcome(found)

    return as_method(kit, "least-to-most", answer)


def listed(text: str) -> list[str]:
    r"""The items of a list.

    Example:
        >>> listed("Sure:\n1. Who?\n2) When?\nDone.")
        ['Who?', 'When?']
    """
    return [found.group(1).strip() for line in text.splitlines() if (found := _ITEM.match(line))]
