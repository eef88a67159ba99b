"""The base of all methods: model calls, search, the conversation as text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableLambda

from langgraph_convcoa.actions.base import ActionRequest
from langgraph_convcoa.actions.knowledge import KnowledgeRetrieval
from langgraph_convcoa.actions.runner import as_evidence
from langgraph_convcoa.chain import ChainItem
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.records import Outcome, Turn
from langgraph_convcoa.nodes.plan import MODEL_K
from langgraph_convcoa.reasoning.models import call_error, status_code
from langgraph_convcoa.reasoning.parsing import without_thought
from langgraph_convcoa.text.citations import check_citations

Answerer = Runnable[Turn, Outcome]
"""Answers a question. Callbacks in its config count calls, tokens and searches, so it must pass the config on, as LangChain's
runnables and graphs do."""

_LONGEST_QUERY = 2_000


@dataclass(frozen=True)
class Kit:
    """Model, retriever and settings of a run, the same for all of its methods."""

    model: BaseChatModel | None = None  # None for methods that need no model
    retriever: BaseRetriever | None = None  # None for a run without a corpus
    k: int | None = 5  # passages for each search; the graph's default when None
    max_steps: int = 6  # most rounds of a method that works in rounds, such as ReAct
    samples: int = 5  # replies that a method draws for one prompt
    settings: ConvCoAContext = field(default_factory=ConvCoAContext)  # settings of the method "ours"

    def chat_model(self) -> BaseChatModel:
        """The model; raises InputError if there is none."""
        if self.model is None:
            raise InputError("This method needs a chat model: name one with --model")
        return self.model


@dataclass
class _Shared:
    """State that a method keeps between its questions."""

    action: KnowledgeRetrieval | None
    options_work: bool = True


class Asking:
    """One question while a method answers it: model calls, searches and the count of malformed replies."""

    def __init__(self, kit: Kit, turn: Turn, shared: _Shared) -> None:
        self.kit = kit
        self.question = turn.question
        self.context = conversation(turn, kit.settings.history_budget_tokens)
        self.malformed = 0
        self._shared = shared
        self._searched = False
        self._numbers: dict[str, int] = {}

    async def reply(self, prompt: str | Sequence[BaseMessage], *, stop: Sequence[str] = (), **options: Any) -> str:
        """Ask the model, with options such as `temperature`. Some servers ignore `stop`, so the reply is also cut here."""
        messages: list[BaseMessage] = [HumanMessage(prompt)] if isinstance(prompt, str) else list(prompt)
        if stop:
            options["stop"] = list(stop)
        message = await self._ask(messages, options if self._shared.options_work else {})
        text = without_thought(message.text)
        for end in stop:
            text = text.split(end, 1)[0]
        return text.strip()

    async def written(self, prompt: str) -> Outcome:
        """The outcome whose answer is the whole reply; an empty reply is malformed."""
        reply = await self.reply(prompt)
        self.malformed += not reply
        return self.outcome(reply)

    async def search(self, query: str, guess: str = "") -> list[Document]:
        """The passages for a query and a guess, best first; none for an empty query.

        A passage keeps the number that it got when it was found first.
        """
        self._searched = True
        query = " ".join(query.split())[:_LONGEST_QUERY]
        action = self._shared.action
        if not query or action is None:
            return []
        request = ActionRequest(self.question, query, guess_answer=guess[:_LONGEST_QUERY], k=self.kit.k or MODEL_K)
        found = as_evidence(await action.retrieve(request), action.name, request)
        for document in found:
            self._numbers.setdefault(str(document.id), len(self._numbers) + 1)
        return found

    def outcome(self, answer: str, chain: Sequence[ChainItem] = ()) -> Outcome:
        """The outcome of the question; citations are checked against the passages that were found, as in ours."""
        answer = answer.strip()
        if self._searched:
            answer, _, _ = check_citations(answer, len(self._numbers))
        return Outcome(answer, tuple(self._numbers), tuple(chain), self.malformed)

    def number(self, document: Document) -> int:
        """The number under which a passage is cited."""
        return self._numbers[str(document.id)]

    def shown(self, documents: Sequence[Document]) -> str:
        """Passages for a prompt, one a line with its number."""
        return "\n".join(f"[{self.number(document)}] {' '.join(document.page_content.split())}" for document in documents)

    async def _ask(self, messages: list[BaseMessage], options: dict[str, Any]) -> BaseMessage:
        model = self.kit.chat_model()
        try:
            return await model.ainvoke(messages, **options)
        except Exception as error:
            # Some models reject stop sequences or a temperature.
            if not options or status_code(error) not in (400, 422):
                raise call_error(error, model) from error
        message = await self._ask(messages, {})
        self._shared.options_work = False
        return message


def as_method(kit: Kit, name: str, answer: Callable[[Asking], Awaitable[Outcome]]) -> Answerer:
    """Make a method of a coroutine function; invoke it with `ainvoke`."""
    shared = _Shared(KnowledgeRetrieval(kit.retriever) if kit.retriever is not None else None)

    async def run(turn: Turn) -> Outcome:
        return await answer(Asking(kit, turn, shared))

    return RunnableLambda(run, name=name)


def conversation(turn: Turn, budget_tokens: int) -> str:
    """The last turns of a conversation that fit a token budget, as text that ends with a blank line.

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
