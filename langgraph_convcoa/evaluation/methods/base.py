"""The base of all methods: model calls, search, the conversation as text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableLambda

from langgraph_convcoa.actions.base import Action, ActionRequest
from langgraph_convcoa.actions.knowledge import KnowledgeRetrieval
from langgraph_convcoa.actions.runner import evidence_of
from langgraph_convcoa.chain import ChainItem
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.evaluation.records import Outcome, Turn
from langgraph_convcoa.reasoning.models import call_error, status_code
from langgraph_convcoa.reasoning.parsing import without_thought
from langgraph_convcoa.text.citations import check_citations

Method = Runnable[Turn, Outcome]
"""Answers a question. Whoever invokes it counts its calls, tokens and searches with callbacks in the config, so that a method
passes the config of its run on, which LangChain's runnables and graphs do by themselves, and counts nothing."""

SAMPLE: ContextVar[int] = ContextVar("sample", default=0)
"""The number of the sample, from 0, that a method draws of a prompt: it distinguishes equal requests in the reply cache."""
SAMPLING_TEMPERATURE = 0.7
"""Of methods that draw several replies to one prompt (Wang et al. 2022 section 3.1, Yao et al. 2023 section 4)."""

_LONGEST_QUERY = 2_000


@dataclass(frozen=True)
class Kit:
    """The means of a run, the same for all of its methods."""

    model: BaseChatModel
    retriever: BaseRetriever | None = None  # what is searched; None for a run without a corpus
    k: int = 5  # passages a search
    max_steps: int = 6  # most rounds of a method that repeats until it is done (ReAct, self-ask, search-in-the-chain)
    samples: int = 5  # replies of self-consistency, and branches of tree of thoughts
    settings: ConvCoAContext = field(default_factory=ConvCoAContext)  # of ours
    # Questions with their answers, for few-shot prompts; of another part of the data than what is asked.
    examples: Sequence[tuple[str, str]] = ()
    actions: Sequence[Action] = ()  # further actions of ours besides the retriever, such as the web or tables

    def all_actions(self) -> list[Action]:
        """The actions that ours can take: the retriever's, and the further ones."""
        return [*([KnowledgeRetrieval(self.retriever)] if self.retriever is not None else []), *self.actions]


@dataclass(frozen=True)
class Worked:
    """A question with pairs of simpler questions and their answers, in order, and its own answer."""

    question: str
    steps: Sequence[tuple[str, str]]
    answer: str  # as short as it can be
    sentence: str  # as it would be said in a conversation, with [n] behind what the answer to the n-th simpler question says

    @property
    def chain(self) -> str:
        """The steps as sentences."""
        return " ".join(answer for _, answer in self.steps)


WORKED = (
    Worked(
        "On which continent is the country whose capital is Lima?",
        (
            ("Which country has the capital Lima?", "Lima is the capital of Peru."),
            ("On which continent is Peru?", "Peru is in South America."),
        ),
        "South America",
        "Peru, whose capital is Lima [1], is in South America [2].",
    ),
    Worked(
        "Which element has the larger atomic number, iron or gold?",
        (
            ("What is the atomic number of iron?", "The atomic number of iron is 26."),
            ("What is the atomic number of gold?", "The atomic number of gold is 79."),
        ),
        "gold",
        "Gold has the larger one: its atomic number is 79 [2], that of iron 26 [1].",
    ),
    Worked(
        "In which century did the author of Hamlet die?",
        (
            ("Who wrote Hamlet?", "Hamlet was written by William Shakespeare."),
            ("When did William Shakespeare die?", "William Shakespeare died in 1616."),
        ),
        "the 17th century",
        "William Shakespeare, who wrote Hamlet [1], died in the 17th century, in 1616 [2].",
    ),
)
"""Worked examples for prompts that show how it is done, when the kit has no examples of its own."""


@dataclass
class _Shared:
    """What a method keeps between its questions."""

    action: KnowledgeRetrieval | None
    options_work: bool = True


class Asking:
    """One question in the hands of a method: it asks, searches, and counts what it could not read."""

    def __init__(self, kit: Kit, turn: Turn, shared: _Shared) -> None:
        self.kit = kit
        self.turn = turn
        self.question = turn.question
        self.context = conversation(turn, kit.settings.history_budget_tokens)
        self.malformed = 0
        self._shared = shared
        self._searched = False
        self._numbers: dict[str, int] = {}

    async def reply(self, prompt: str | Sequence[BaseMessage], *, stop: Sequence[str] = (), sample: int | None = None) -> str:
        """Ask the model.

        The reply is cut at `stop` here too, since not every server obeys; with `sample`, its number, it is drawn at
        `SAMPLING_TEMPERATURE`.
        """
        messages: list[BaseMessage] = [HumanMessage(prompt)] if isinstance(prompt, str) else list(prompt)
        options: dict[str, Any] = {"stop": list(stop)} if stop else {}
        if sample is not None:
            options["temperature"] = SAMPLING_TEMPERATURE
        token = SAMPLE.set(sample or 0)
        try:
            message = await self._ask(messages, options if self._shared.options_work else {})
        finally:
            SAMPLE.reset(token)
        text = without_thought(message.text)
        for end in stop:
            text = text.split(end, 1)[0]
        return text.strip()

    async def written(self, prompt: str) -> Outcome:
        """The outcome whose answer is the reply as it is; an empty one is malformed."""
        reply = await self.reply(prompt)
        self.malformed += not reply
        return self.outcome(reply)

    async def search(self, query: str, guess: str = "") -> list[Document]:
        """The passages for a query, best first, each with an id and a quote; none for an empty query.

        A guess is searched for with the query. A passage keeps the number under which it was found first.
        """
        self._searched = True
        query = " ".join(query.split())[:_LONGEST_QUERY]
        action = self._shared.action
        if not query or action is None:
            return []
        request = ActionRequest(self.question, query, guess_answer=guess[:_LONGEST_QUERY], k=self.kit.k)
        found = evidence_of(await action.retrieve(request), action.name, request)
        for document in found:
            self._numbers.setdefault(str(document.id), len(self._numbers) + 1)
        return found

    def outcome(self, answer: str, chain: Sequence[ChainItem] = ()) -> Outcome:
        """What the method gives back; its citations are checked as ours are, against the passages that were found."""
        answer, removed = answer.strip(), 0
        if self._searched:
            answer, _, removed = check_citations(answer, len(self._numbers))
        return Outcome(answer, tuple(self._numbers), tuple(chain), self.malformed, removed)

    def number(self, document: Document) -> int:
        """The number of a passage that was found, under which it is cited."""
        return self._numbers[str(document.id)]

    def shown(self, documents: Sequence[Document]) -> str:
        """Passages for a prompt, one a line with its number."""
        return "\n".join(f"[{self.number(document)}] {' '.join(document.page_content.split())}" for document in documents)

    async def _ask(self, messages: list[BaseMessage], options: dict[str, Any]) -> BaseMessage:
        model = self.kit.model
        try:
            return await model.ainvoke(messages, **options)
        except Exception as error:
            # Some models know neither stop sequences nor a temperature, and reject a request that names them.
            if not options or status_code(error) not in (400, 422):
                raise call_error(error, model) from error
        message = await self._ask(messages, {})
        self._shared.options_work = False
        return message


def as_method(kit: Kit, name: str, answer: Callable[[Asking], Awaitable[Outcome]]) -> Method:
    """A method of a coroutine function; it is to be invoked with `ainvoke`."""
    shared = _Shared(KnowledgeRetrieval(kit.retriever) if kit.retriever is not None else None)

    async def run(turn: Turn) -> Outcome:
        return await answer(Asking(kit, turn, shared))

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
