"""The language model alone."""

from __future__ import annotations

from langgraph_convcoa.evaluation.methods.base import Asking
from langgraph_convcoa.evaluation.records import Outcome

INSTRUCTION = "Answer the question from what you know. Be brief, and write only the answer."


async def closed_book(asking: Asking) -> Outcome:
    """The model alone, the zero-shot row of the papers' tables (Pan et al. 2024a and 2024b, table 2): 1 model call."""
    return await asking.written(f"{INSTRUCTION}\n\n{asking.context}Question: {asking.question}\nAnswer:")
