"""Few-shot prompting: Brown et al. 2020, "Language Models are Few-Shot Learners", section 2."""

from __future__ import annotations

from langgraph_convcoa.evaluation.methods.asking import Asking, as_method
from langgraph_convcoa.evaluation.methods.kit import Kit, Method
from langgraph_convcoa.evaluation.methods.worked import WORKED
from langgraph_convcoa.evaluation.runs.answered import Outcome

INSTRUCTION = "Answer the last question in the way of the examples before it. Write only the answer."


def make(kit: Kit) -> Method:
    """Ask after examples, the kit's or three of general knowledge: 1 model call. An empty reply is counted as malformed."""
    examples = kit.examples or [(worked.question, worked.answer) for worked in WORKED]
    shown = "\n\n".join(f"Question: {question}\nAnswer: {answer}" for question, answer in examples)

    async def answer(asking: Asking) -> Outcome:
        question = asking.turn.question
        reply = await asking.reply(f"{INSTRUCTION}\n\n{shown}\n\n{asking.context}Question: {question}\nAnswer:")
        # A model that goes on with another example has answered before.
        reply = reply.split("\nQuestion:", 1)[0].removeprefix("Answer:").strip()
        asking.malformed += not reply
        return asking.outcome(reply)

    return as_method(kit, "few-shot", answer)
