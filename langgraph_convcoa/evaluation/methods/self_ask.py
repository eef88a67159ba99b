"""Self-ask with search: Press et al. 2022, "Measuring and Narrowing the Compositionality Gap in Language Models", section 3.

The loop is that of the released code. What it gets from a search engine's answer box is here the retrieved passages, with all
that a passage says, as in other reproductions over a corpus.
"""

from __future__ import annotations

from langgraph_convcoa.evaluation.methods.asking import Asking, as_method, last_line, passages_text, short_answer
from langgraph_convcoa.evaluation.methods.kit import Kit, Method
from langgraph_convcoa.evaluation.methods.worked import WORKED
from langgraph_convcoa.evaluation.runs.answered import Outcome

INSTRUCTION = "Continue the last text in the way of the example: ask follow up questions until the final answer can be given."
_FOLLOW_UP = "Follow up:"
_INTERMEDIATE = "Intermediate answer:"
_FINAL = "So the final answer is:"


def make(kit: Kit) -> Method:
    """Ask follow-up questions, search each, then answer: n + 1 model calls for n follow-up questions.

    A reply with neither a follow-up question nor a final answer is malformed, and the final answer is asked for in one more
    call, as it is after the kit's most steps.
    """
    worked = WORKED[0]
    steps = "\n".join(f"{_FOLLOW_UP} {question}\n{_INTERMEDIATE} {answer}" for question, answer in worked.steps)
    example = f"Question: {worked.question}\nAre follow up questions needed here: Yes.\n{steps}\n{_FINAL} {worked.answer}"

    async def answer(asking: Asking) -> Outcome:
        text = f"{INSTRUCTION}\n\n{example}\n\n{asking.context}Question: {asking.turn.question}\n"
        text += "Are follow up questions needed here:"
        reply = await asking.reply(text, stop=[_INTERMEDIATE])
        for _ in range(kit.max_steps):
            if _FINAL in reply or _FOLLOW_UP not in last_line(reply):
                break
            query = last_line(reply).split(_FOLLOW_UP)[-1].strip()
            found = passages_text(await asking.search(query)) or "Nothing was found."
            text += f" {reply}\n{_INTERMEDIATE} {found}\n"
            reply = await asking.reply(text, stop=[_INTERMEDIATE])
        if _FINAL not in reply:
            asking.malformed += _FOLLOW_UP not in last_line(reply)
            reply = await asking.reply(f"{text} {reply}\n{_FINAL}", stop=["\n"])
        return asking.outcome(short_answer(reply) or reply)

    return as_method(kit, "self-ask", answer)
