"""What the methods have in common: asking the model, searching, the conversation as text, and reading short answers."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.runnables import RunnableLambda

from langgraph_convcoa.actions.base import ActionRequest
from langgraph_convcoa.actions.knowledge import KnowledgeRetrieval
from langgraph_convcoa.actions.runner import evidence_of
from langgraph_convcoa.chain import ChainItem
from langgraph_convcoa.evaluation.methods.kit import Kit, Method
from langgraph_convcoa.evaluation.runs.answered import Outcome, Turn
from langgraph_convcoa.reasoning.models import call_error, status_code
from langgraph_convcoa.reasoning.thoughts import without_thought

SAMPLING_TEMPERATURE = 0.7
"""Of methods that draw several replies to one prompt (Wang et al. 2022 section 3.1, Yao et al. 2023 section 4)."""
_ANSWER_IS = re.compile(r"answer is\s*:?\s*([^\s:].*)", re.IGNORECASE | re.DOTALL)
_LONGEST_QUERY = 2_000


@dataclass
class _Means:
    """What a method keeps between its questions."""

    action: KnowledgeRetrieval | None
    options_work: bool = True


class Asking:
    """One question in the hands of a method: it asks, searches, and counts what it could not read.

    Attributes:
        kit: The means of the run.
        turn: The question.
        malformed: Replies that could not be read; the method adds to it.
    """

    def __init__(self, kit: Kit, turn: Turn, means: _Means) -> None:
        self.kit = kit
        self.turn = turn
        self.malformed = 0
        self._means = means
        self._passages: dict[str, None] = {}

    @property
    def context(self) -> str:
        """The conversation before the question, as text with a blank line after it; "" at its beginning."""
        return conversation(self.turn, self.kit.settings.history_budget_tokens)

    async def reply(self, prompt: str | Sequence[BaseMessage], *, stop: Sequence[str] = (), sampled: bool = False) -> str:
        """Ask the model.

        Args:
            prompt: A text, or the messages of an exchange.
            stop: Where the reply ends; cut here too, since not every server obeys.
            sampled: Draw the reply at `SAMPLING_TEMPERATURE`.

        Raises:
            ModelError: The model does not answer.
        """
        messages: list[BaseMessage] = [HumanMessage(prompt)] if isinstance(prompt, str) else list(prompt)
        options: dict[str, Any] = {"stop": list(stop)} if stop else {}
        if sampled:
            options["temperature"] = SAMPLING_TEMPERATURE
        message = await self._ask(messages, options if self._means.options_work else {})
        text = without_thought(message.text)
        for end in stop:
            text = text.split(end, 1)[0]
        return text.strip()

    async def _ask(self, messages: list[BaseMessage], options: dict[str, Any]) -> BaseMessage:
        try:
            return await self.kit.model.ainvoke(messages, **options)
        except Exception as error:
            # Some models know neither stop sequences nor a temperature, and reject a request that names them.
            if not options or status_code(error) not in (400, 422):
                raise call_error(error, self.kit.model) from error
        try:
            message = await self.kit.model.ainvoke(messages)
        except Exception as error:
            raise call_error(error, self.kit.model) from error
        self._means.options_work = False
        return message

    async def search(self, query: str, guess: str = "") -> list[Document]:
        """The passages for a query, best first, each with an id and a quote; none for an empty query.

        Args:
            query: What to look for.
            guess: An answer that is to be borne out; searched for with the query.
        """
        query = " ".join(query.split())[:_LONGEST_QUERY]
        if not query or self._means.action is None:
            return []
        request = ActionRequest(self.turn.question, query, guess_answer=guess[:_LONGEST_QUERY], k=self.kit.k)
        found = evidence_of(await self._means.action.retrieve(request), self._means.action.name, request)
        self._passages.update(dict.fromkeys(str(document.id) for document in found))
        return found

    def outcome(self, answer: str, chain: Sequence[ChainItem] = ()) -> Outcome:
        """What the method gives back."""
        return Outcome(answer.strip(), tuple(self._passages), tuple(chain), self.malformed)


def as_method(kit: Kit, name: str, answer: Callable[[Asking], Awaitable[Outcome]]) -> Method:
    """A method of a coroutine function; it is to be invoked with `ainvoke`."""
    means = _Means(KnowledgeRetrieval(kit.retriever) if kit.retriever is not None else None)

    async def run(turn: Turn) -> Outcome:
        return await answer(Asking(kit, turn, means))

    return RunnableLambda(run, name=name)


def conversation(turn: Turn, budget_tokens: int) -> str:
    """The last turns of a conversation that fit a budget, as text with a blank line after it.

    Example:
        >>> print(conversation(Turn("q2", "c", "When?", (("Who?", "Ada."),)), 100), end="")
        Conversation so far:
        User: Who?
        Assistant: Ada.
        <BLANKLINE>
    """
    lines: list[str] = []
    for question, answer in reversed(turn.history):
        earlier = [f"User: {question}", f"Assistant: {answer}", *lines]
        if count_tokens_approximately(["\n".join(earlier)]) > budget_tokens:
            break
        lines = earlier
    return "\n".join(["Conversation so far:", *lines]) + "\n\n" if lines else ""


def short_answer(text: str) -> str | None:
    """What stands after the last "the answer is", without the stop at its end; None where nobody says so.

    Example:
        >>> short_answer("It was Ada. So the answer is: Ada Lovelace.")
        'Ada Lovelace'
    """
    parts = re.split(r"(?i)\bso the (?=(?:final )?answer is)", text)
    found = _ANSWER_IS.search(parts[-1])
    if found is None:
        return None
    lines = found.group(1).strip().splitlines()
    return lines[0].strip().strip("*").rstrip(".").strip() or None if lines else None


def passages_text(documents: Sequence[Document]) -> str:
    r"""Passages for a prompt, one a line with its number.

    Example:
        >>> passages_text([Document("It was  1982."), Document("No.")])
        '[1] It was 1982.\n[2] No.'
    """
    return "\n".join(f"[{n}] {' '.join(document.page_content.split())}" for n, document in enumerate(documents, 1))


def last_line(text: str) -> str:
    """The last line that says something, which is what is left of a reply in no known form."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
