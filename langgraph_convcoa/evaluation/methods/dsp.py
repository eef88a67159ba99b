"""Demonstrate-search-predict: Khattab et al. 2022, "Demonstrate-Search-Predict: Composing retrieval and language models for
knowledge-intensive NLP", section 3.

The multi-hop program of the authors' introduction (`multihop_QA_v1`): two hops, each a rationale and a query, their passages
joined, then a prediction with a chain of thought. The demonstrations are the kit's examples, which have no annotated steps.
"""

from __future__ import annotations

from langchain_core.documents import Document

from langgraph_convcoa.evaluation.methods.asking import Asking, as_method, last_line, passages_text
from langgraph_convcoa.evaluation.methods.kit import Kit, Method
from langgraph_convcoa.evaluation.runs.answered import Outcome

SEARCH = "Write a search query that will help to answer a complex question."
PREDICT = "Answer the question from the context with a short factual answer."
HOPS = 2
_QUERY = "Search Query:"
_ANSWER = "Answer:"


def make(kit: Kit) -> Method:
    """Two hops of query and search, then the answer: 3 model calls.

    A reply without its last field is malformed: its last line is the query or the answer, and for an empty one the question is
    searched for.
    """
    shown = "".join(f"Question: {question}\nAnswer: {answer}\n\n" for question, answer in kit.examples)

    async def answer(asking: Asking) -> Outcome:
        question = f"{asking.context}Question: {asking.turn.question}"
        context: dict[str, Document] = {}
        for hop in range(HOPS):
            wanted = "what is missing to answer it" if hop == 0 else "what the context tells, and what is still missing"
            form = f"Follow this form.\nRationale: {wanted}\n{_QUERY} the query"
            prompt = f"{SEARCH} {form}\n\n{shown}{_context(context)}{question}\nRationale: Let's think step by step."
            query = _field(asking, await asking.reply(prompt), _QUERY) or asking.turn.question
            for document in await asking.search(query):
                context.setdefault(document.page_content, document)
        form = f"Follow this form.\nRationale: the steps to the answer\n{_ANSWER} the answer, often a few words"
        prompt = f"{PREDICT} {form}\n\n{shown}{_context(context)}{question}\nRationale: Let's think step by step."
        return asking.outcome(_field(asking, await asking.reply(prompt), _ANSWER))

    return as_method(kit, "dsp", answer)


def _context(documents: dict[str, Document]) -> str:
    return f"Context:\n{passages_text(list(documents.values()))}\n\n" if documents else ""


def _field(asking: Asking, reply: str, name: str) -> str:
    """The last field of a reply, on one line."""
    if name not in reply:
        asking.malformed += 1
        return last_line(reply)
    return reply.rsplit(name, 1)[1].strip().split("\n", 1)[0].strip()
