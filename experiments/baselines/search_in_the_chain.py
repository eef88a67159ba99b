"""Search-in-the-chain: Xu et al. 2023, "Search-in-the-Chain: Interactively Enhancing Large Language Models with Search for
Knowledge-intensive Tasks", section 3 and algorithm 1.

The model writes a whole chain of queries with answers. Each query is searched, and its answer is verified against the first
passage or, if missing, completed from it. At the first node that fails, the model gets the passage and rewrites the chain from
there. No node is checked twice. The paper has a reader, a trained model that extracts an answer. Here the library's
verification and the sentence closest to the query replace it; both make no model call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from experiments.baselines.replies import last_line, short_answer
from experiments.baselines.worked import WORKED
from langgraph_convcoa.evaluation.methods.prompting import Asking
from langgraph_convcoa.evaluation.records import Outcome
from langgraph_convcoa.text.citation_marks import without_marks
from langgraph_convcoa.verification.answer_check import as_claim, judge
from langgraph_convcoa.verification.premise import Evidence
from langgraph_convcoa.verification.verifier import LexicalVerifier

INSTRUCTION = (
    "Construct a global reasoning chain for the complex [Question] below. At each step of the chain write a query to a search "
    "engine, starting with [Query]. If you know the answer of a query, write it, starting with [Answer]; if you do not, write "
    "the query again, starting with [Unsolved Query]. When the chain is complete, write the final answer from its queries and "
    'answers, starting with [Final Content] and ending with "So the answer is:" and a brief, complete answer, with [n] behind '
    "what passage n of a Reference says."
)
_WORDS = LexicalVerifier()
_MARK = re.compile(r"\[(Unsolved Query|Query|Answer|Final Content)[ \d]*\]\s*:?", re.IGNORECASE)


@dataclass
class Node:
    """A query of the chain, and the model's answer; "" if there is none."""

    query: str
    answer: str = ""


async def search_in_the_chain(asking: Asking) -> Outcome:
    """Chain, verify, continue: 1 model call, and 1 for each answer that is corrected or completed; at most `max_steps` calls.

    A reply without any part of a chain is malformed and ends the work. Without a final content the reply is malformed too, and
    the answer of the last node is used.
    """
    most = max(asking.kit.max_steps, 1)
    messages: list[BaseMessage] = [
        HumanMessage(f"{INSTRUCTION}\n\nFor example:\n{_example()}\n\n{asking.context}[Question]: {asking.question}")
    ]
    seen: set[str] = set()
    nodes: list[Node] = []
    final = reply = ""
    for step in range(1, most + 1):
        reply = await asking.reply(messages)
        nodes, final = read_chain(reply)
        if step == most or (feedback := await _feedback(asking, nodes, seen)) is None:
            break
        messages += [AIMessage(reply), HumanMessage(f"{feedback}\n[Question]: {asking.question}")]
    if final:
        return asking.outcome(short_answer(final) or final)
    asking.malformed += 1
    return asking.outcome(next((node.answer for node in reversed(nodes) if node.answer), last_line(reply)))


async def _feedback(asking: Asking, nodes: list[Node], seen: set[str]) -> str | None:
    """The message to the model about the first new node that is not supported, or None if all nodes are supported."""
    for node in nodes:
        key = " ".join(node.query.lower().split())
        if not key or key in seen:
            continue
        seen.add(key)
        documents = (await asking.search(node.query))[:1]
        evidence = Evidence.of(documents)
        if not documents or (node.answer and judge([as_claim(node.answer, node.query)], evidence, _WORDS)[0].supported):
            continue
        reference = evidence.premise(node.query).best or str(documents[0].metadata["quote"])
        what = "change your answer" if node.answer else "give your answer"
        return (
            f'According to this Reference, the answer for "{node.query}" should be "{reference}". You can {what} based on the '
            "Reference and continue constructing the reasoning chain to give the final answer.\n"
            f"Reference:\n{asking.shown(documents)}"
        )
    return None


def read_chain(text: str) -> tuple[list[Node], str]:
    r"""The nodes of a reply and its final content."""
    nodes: list[Node] = []
    final = ""
    marks = list(_MARK.finditer(text))
    for number, mark in enumerate(marks, 1):
        content = text[mark.end() : marks[number].start() if number < len(marks) else len(text)].strip()
        kind = mark.group(1).lower()
        if kind == "final content":
            final = content
        elif kind == "answer":
            if nodes and not nodes[-1].answer:
                nodes[-1].answer = content
        elif kind == "query" or not nodes or nodes[-1].answer or nodes[-1].query != content:
            nodes.append(Node(content))
    return nodes, final


def _example() -> str:
    first, second = WORKED[0], WORKED[2]
    known = [f"[Query {n}]: {query}\n[Answer {n}]: {answer}" for n, (query, answer) in enumerate(first.steps, 1)]
    final = f"[Final Content]: {first.chain} So the answer is: {without_marks(first.sentence)}"
    query = second.steps[0][0]
    unsolved = f"[Question]: {second.question}\n[Query 1]: {query}\n[Unsolved Query 1]: {query}"
    return "\n".join([f"[Question]: {first.question}", *known, final, "", unsolved])
