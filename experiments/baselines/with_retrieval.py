"""Methods with a fixed retrieval pipeline: self-ask and demonstrate-search-predict.

The papers ask for a short answer to a trivia question. Here all methods that look things up are asked for an answer in a
conversation, with [n] behind what passage n says.
"""

from __future__ import annotations

from langchain_core.documents import Document

from experiments.baselines.replies import last_line, short_answer
from experiments.baselines.worked import WORKED
from langgraph_convcoa.evaluation.methods.prompting import Asking
from langgraph_convcoa.evaluation.records import Outcome

SELF_ASK = (
    "Continue the last text in the way of the example: ask follow up questions until the final answer can be given, brief and "
    "complete, with [n] behind what passage n says."
)
DSP_SEARCH = "Write a search query that will help to answer a complex question."
DSP_PREDICT = "Answer the question from the context, briefly and completely, with [n] behind what passage n says."
_FOLLOW_UP = "Follow up:"
_INTERMEDIATE = "Intermediate answer:"
_FINAL = "So the final answer is:"
_HOPS = 2
_QUERY = "Search Query:"
_ANSWER = "Answer:"


async def self_ask(asking: Asking) -> Outcome:
    """Self-ask with search (Press et al. 2022, section 3): n + 1 model calls for n follow-up questions.

    The loop is that of the released code. Whole retrieved passages replace a search engine's answer box, as in other
    reproductions over a corpus. A reply with neither a follow-up question nor a final answer is malformed. After such a
    reply, and after the kit's `max_steps`, one more call asks for the final answer.
    """
    worked = WORKED[0]
    steps = "\n".join(
        f"{_FOLLOW_UP} {question}\n{_INTERMEDIATE} [{n}] {answer}" for n, (question, answer) in enumerate(worked.steps, 1)
    )
    example = f"Question: {worked.question}\nAre follow up questions needed here: Yes.\n{steps}\n{_FINAL} {worked.sentence}"
    text = f"{SELF_ASK}\n\n{example}\n\n{asking.context}Question: {asking.question}\nAre follow up questions needed here:"
    reply = await asking.reply(text, stop=[_INTERMEDIATE])
    for _ in range(asking.kit.max_steps):
        if _FINAL in reply or _FOLLOW_UP not in last_line(reply):
            break
        query = last_line(reply).split(_FOLLOW_UP)[-1].strip()
        found = asking.shown(await asking.search(query)) or "Nothing was found."
        text += f" {reply}\n{_INTERMEDIATE} {found}\n"
        reply = await asking.reply(text, stop=[_INTERMEDIATE])
    if _FINAL not in reply:
        asking.malformed += _FOLLOW_UP not in last_line(reply)
        reply = await asking.reply(f"{text} {reply}\n{_FINAL}", stop=["\n"])
    return asking.outcome(short_answer(reply) or reply)


async def dsp(asking: Asking) -> Outcome:
    """Demonstrate-search-predict (Khattab et al. 2022, section 3): two hops of query and search, the answer; 3 model calls.

    The multi-hop program of the authors' introduction (`multihop_QA_v1`): two hops, each with a rationale and a query, then a
    prediction with a chain of thought over the passages of both; without demonstrations. A reply without its last field is
    malformed, and its last line is the query or the answer. If the query is empty, the question is searched for.
    """
    found: dict[str, Document] = {}

    async def asked(instruction: str, rationale: str, field: str, value: str) -> str:
        form = f"Follow this form.\nRationale: {rationale}\n{field} {value}"
        context = f"Context:\n{asking.shown(list(found.values()))}\n\n" if found else ""
        reply = await asking.reply(
            f"{instruction} {form}\n\n{context}{asking.context}Question: {asking.question}\n"
            "Rationale: Let's think step by step."
        )
        if field not in reply:
            asking.malformed += 1
            return last_line(reply)
        return reply.rsplit(field, 1)[1].strip().split("\n", 1)[0].strip()

    for hop in range(_HOPS):
        wanted = "what is missing to answer it" if hop == 0 else "what the context tells, and what is still missing"
        query = await asked(DSP_SEARCH, wanted, _QUERY, "the query") or asking.question
        for document in await asking.search(query):
            found.setdefault(document.page_content, document)
    return asking.outcome(await asked(DSP_PREDICT, "the steps to the answer", _ANSWER, "the answer"))
