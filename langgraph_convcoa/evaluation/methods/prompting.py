"""The base of all methods (model calls, search, the conversation as text), and the methods to compare "ours" with."""

from __future__ import annotations

import re
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
from langgraph_convcoa.reasoning.chat_model import render
from langgraph_convcoa.reasoning.excerpts import Excerpt, fence
from langgraph_convcoa.reasoning.models import call_error, status_code
from langgraph_convcoa.reasoning.parsing import without_thought
from langgraph_convcoa.text.citation_marks import renumbered_marks
from langgraph_convcoa.text.words import sentences

Answerer = Runnable[Turn, Outcome]
"""A runnable that answers a question. Callbacks in its config count calls, tokens and searches, so the runnable must pass the
config on, as LangChain's runnables and graphs do."""

_LONGEST_QUERY = 2_000
ANSWER = "Answer the question from what you know. Be brief, and write only the answer."
_FILES = ("evaluate_rewrite", "evaluate_read", "evaluate_react", "evaluate_react_example")
REWRITE, READ, REACT, _EXAMPLE = (render(name).rstrip() for name in _FILES)
_ACTION = re.compile(r"\b(search|lookup|finish)\s*\[(.*?)\]\s*\.?\s*$", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Kit:
    """Model, retriever and settings of a run, the same for all of its methods."""

    model: BaseChatModel | None = None  # None for methods that need no model
    retriever: BaseRetriever | None = None  # None for a run without a corpus
    k: int | None = 5  # passages for each search; the graph's default when None
    max_steps: int = 6  # maximum number of rounds of a method such as ReAct
    samples: int = 5  # number of replies that a method draws for one prompt
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
        text = without_thought((await self._ask(messages, options if self._shared.options_work else {})).text)
        for end in stop:
            text = text.split(end, 1)[0]
        return text.strip()

    async def written(self, prompt: str) -> Outcome:
        """Ask the model, and take the whole reply as the answer. An empty reply counts as malformed."""
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
        """Make the outcome of the question. Citations of passages that were not found are removed, as in the graph."""
        answer = answer.strip()
        if self._searched:
            answer, _, _ = renumbered_marks(answer, len(self._numbers))
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
    """Make a method from a coroutine function. It can be invoked only with `ainvoke`."""
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


async def closed_book(asking: Asking) -> Outcome:
    """The model alone: 1 model call. This is the zero-shot row of the papers' tables (Pan et al. 2024a and 2024b, table 2)."""
    return await asking.written(f"{ANSWER}\n\n{asking.context}Question: {asking.question}\nAnswer:")


async def history_aware_rag(asking: Asking) -> Outcome:
    """Rewrite if there is a conversation, retrieve, answer: 2 model calls, 1 at the beginning of a conversation.

    It works as LangChain's `create_history_aware_retriever` with a `create_retrieval_chain`, and as the query rewriting of Pan
    et al. 2024b (Ye et al. 2023, "Enhancing Conversational Search"). If the rewrite is empty, the question itself is searched
    for. An empty rewrite and an empty answer count as malformed.
    """
    question = asking.question
    if asking.context:
        rewritten = await asking.reply(f"{REWRITE}\n\n{asking.context}Question: {question}\nStandalone question:")
        asking.malformed += not rewritten
        question = rewritten or question
    passages = await asking.search(question)
    evidence = fence([Excerpt(asking.number(passage), passage, passage.page_content) for passage in passages])
    return await asking.written(f"{READ}\n\n{evidence}\n\n{asking.context}Question: {asking.question}\nAnswer:")


async def react(asking: Asking) -> Outcome:
    """ReAct (Yao et al. 2022, section 3): n + 1 model calls for n searches, at most `Kit.max_steps`.

    The loop is that of the released code; without a Finish, the answer is empty. Search shows passages. Lookup shows the next
    sentence of these passages that has a given text. One more call asks for a missing action. After an unknown action, the
    model reads that it is invalid. Both count as malformed. The paper asks for short answers. Here answers have citations.
    """
    text = f"{REACT}\n\n{_EXAMPLE}\n\n{asking.context}Question: {asking.question}\n"
    lines: list[str] = []
    hits: list[str] = []
    looked_up = ""
    for number in range(1, asking.kit.max_steps + 1):
        stop = [f"\nObservation {number}:", "\nObservation:"]
        thought, action = _parts(await asking.reply(f"{text}Thought {number}:", stop=stop))
        if not action:
            asking.malformed += 1
            so_far = f"{text}Thought {number}: {thought}\nAction {number}:"
            action = _one_action((await asking.reply(so_far, stop=stop)).removeprefix(f"Action {number}:"))
        found = _ACTION.search(action)
        kind, argument = (found.group(1).lower(), found.group(2).strip()) if found else ("", "")
        if kind == "finish":
            # The bracket of a last citation may have been read as the end of Finish.
            return asking.outcome(f"{argument}]" if re.search(r"\[\d+\Z", argument) else argument)
        if kind == "search":
            documents = await asking.search(argument)
            lines = [
                f"[{asking.number(document)}] {' '.join(sentence.text.split())}"
                for document in documents
                for sentence in sentences(document.page_content)
            ]
            looked_up = ""
            seen = asking.shown(documents) or "Nothing was found."
        elif kind == "lookup":
            if argument.lower() != looked_up:
                looked_up = argument.lower()
                hits = [line for line in lines if looked_up in line.lower()]
            seen = hits.pop(0) if hits else "No more results."
        else:
            asking.malformed += 1
            seen = "Invalid action: it is Search[...], Lookup[...] or Finish[...]."
        text += f"Thought {number}: {thought}\nAction {number}: {action}\nObservation {number}: {seen}\n"
    return asking.outcome("")


def _parts(reply: str) -> tuple[str, str]:
    """Thought and action of a reply; if it has no action, its first line is the thought."""
    reply = re.sub(r"\A\s*Thought\s*\d*:\s*", "", reply)
    found = re.search(r"(?:^|\n)\s*Action\s*\d*:", reply)
    if found is None:
        return reply.strip().split("\n", 1)[0], ""
    return reply[: found.start()].strip(), _one_action(reply[found.end() :])


def _one_action(text: str) -> str:
    """The first line of an action, or all lines of a Finish."""
    text = text.strip()
    return text if re.match(r"finish\s*\[", text, re.IGNORECASE) else text.split("\n", 1)[0].strip()
