"""The model alone: the zero-shot row of the papers' tables (Pan et al. 2024b, table 2, Pan et al. 2024a, table 2)."""

from __future__ import annotations

from langgraph_convcoa.evaluation.methods.asking import Asking, as_method
from langgraph_convcoa.evaluation.methods.kit import Kit, Method
from langgraph_convcoa.evaluation.runs.answered import Outcome

INSTRUCTION = "Answer the question from what you know. Be brief, and write only the answer."


def make(kit: Kit) -> Method:
    """Ask the question as it is: 1 model call. An empty reply is counted as malformed."""

    async def answer(asking: Asking) -> Outcome:
        reply = await asking.reply(f"{INSTRUCTION}\n\n{asking.context}Question: {asking.turn.question}\nAnswer:")
        asking.malformed += not reply
        return asking.outcome(reply)

    return as_method(kit, "closed-book", answer)
