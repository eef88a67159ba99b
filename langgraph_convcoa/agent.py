"""Verified answers in an agent of LangChain: a middleware for `create_agent`, and the graph as a tool."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired, cast

from langchain.agents.middleware import AgentMiddleware, AgentState, ExtendedModelResponse, ModelRequest, ModelResponse
from langchain.agents.middleware.types import OmitFromInput
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, ToolMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import Runnable
from langchain_core.runnables.config import merge_configs, set_config_context
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.config import get_config
from langgraph.constants import TAG_NOSTREAM
from langgraph.graph.message import push_message
from langgraph.types import Command

from langgraph_convcoa.chain import chain_item
from langgraph_convcoa.errors import InputError, ModelError, one_of
from langgraph_convcoa.memory.knowledge_set import Citation
from langgraph_convcoa.nodes.answer import citation_annotations, citation_of
from langgraph_convcoa.nodes.runtime import emit
from langgraph_convcoa.nodes.verify import apply_to_answer
from langgraph_convcoa.reasoning.base import Corrected, CorrectRequest, Unsolved
from langgraph_convcoa.reasoning.chat_model import ChatModelReasoner
from langgraph_convcoa.reasoning.streaming import SentenceGate, is_followed, show
from langgraph_convcoa.retrieval.query.conversation_state import history_pairs
from langgraph_convcoa.state import finding, merge_findings
from langgraph_convcoa.text.citation_marks import CitationFilter
from langgraph_convcoa.text.clean import clean
from langgraph_convcoa.verification.answer_check import CheckedSentence, Checker, before_stop
from langgraph_convcoa.verification.trained import as_verifier
from langgraph_convcoa.verification.verifier import Verifier

NOTHING_FOUND = "The results of the tools hold no answer to this question."  # The answer if no sentence is left.
_MOST_CHARACTERS = 200_000  # Characters of one tool result, and of one document, that count as evidence.


class VerifiedState(AgentState[Any]):
    """Fields that the middleware adds to the state of an agent, in the form of the graph's output.

    `citations[n - 1]` is cited as [n] in the last answer. `unsupported` has the sentences that no evidence supports,
    `confirmed` the sentences that the verifier refused and the model confirmed.
    """

    citations: NotRequired[Annotated[list[Citation], OmitFromInput]]
    confirmed: NotRequired[Annotated[list[str], OmitFromInput]]
    unsupported: NotRequired[Annotated[list[str], OmitFromInput]]


class VerifiedAnswers(AgentMiddleware[VerifiedState, Any, Any]):
    """Verifies each sentence of an agent's answers against the results of its tools, and cites these results.

    The evidence is all that the tools of the conversation returned: the documents of an artifact, or otherwise the text.
    Supported sentences get [n], and the message gets LangChain's citation annotations. The agent's model corrects or confirms
    the other sentences in one more call. A sentence that is refused again is marked. With `stream_mode="messages"`, each
    sentence appears once it is verified. The default verifier accepts a quarter of false claims (docs/guides/limits.md).

    Messages with tool calls, structured output, and answers without any tool result are not changed. The claims of an answer
    without tool results are in `unsupported`. Put this middleware after any other that retries or replaces the model.

    Args:
        verifier: As in `build_graph`.
        threshold: Threshold T for the verifier's score; the verifier's own by default.
        corrections: Calls of the model for an answer, 0 to 2.
        evidence: Names of the tools whose results are evidence; all tools by default.
        on_unsupported: "correct" asks the model; "mark" makes no call; "drop" removes the sentences that no evidence supports.
        mark: Text behind a sentence that no evidence supports; "" for none.

    Raises:
        InputError: A setting is out of range, or the verifier is unknown.

    Example:
        >>> from langchain.agents import create_agent
        >>> from langchain_core.language_models import FakeListChatModel
        >>> agent = create_agent(FakeListChatModel(responses=["Hello!"]), middleware=[VerifiedAnswers()])
        >>> agent.invoke({"messages": "Hi"})["messages"][-1].text
        'Hello!'
    """

    state_schema = VerifiedState

    def __init__(
        self,
        *,
        verifier: Verifier | str = "default",
        threshold: float | None = None,
        corrections: int = 1,
        evidence: Collection[str] | None = None,
        on_unsupported: Literal["correct", "mark", "drop"] = "correct",
        mark: str = "(not verified)",
    ) -> None:
        super().__init__()
        one_of("on_unsupported", on_unsupported, ("correct", "mark", "drop"))
        if isinstance(corrections, bool) or corrections not in (0, 1, 2):
            raise InputError(f"corrections must be 0, 1 or 2, not {corrections!r}.")
        if threshold is not None and not 0 <= threshold <= 1:
            raise InputError(f"threshold must be between 0 and 1, not {threshold!r}.")
        if isinstance(evidence, str):
            raise InputError(f"evidence takes names of tools in a list, such as [{evidence!r}].")
        self.verifier, self.threshold = as_verifier(verifier), threshold
        self.corrections = corrections if on_unsupported == "correct" else 0
        self.evidence = None if evidence is None else frozenset(evidence)
        self.drops, self.mark = on_unsupported == "drop", mark.strip()

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        if request.response_format is not None:
            return handler(request)
        answer = _Answer(self, request)
        with set_config_context(answer.config) as context:
            response = context.run(handler, request)
        if not answer.read(response):
            return _updated(response)
        for _ in range(self.corrections):
            if not (wanted := answer.wanted()):
                break
            try:
                answer.correct(ChatModelReasoner(request.model).correct(wanted, get_config()))
            except ModelError as error:
                answer.failure = str(error)
                break
        return answer.finish(response)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """As `wrap_model_call`. Threads verify, so that the event loop is free."""
        if request.response_format is not None:
            return await handler(request)
        answer = await asyncio.to_thread(_Answer, self, request)
        with set_config_context(answer.config) as context:
            response = await asyncio.create_task(cast("Any", handler(request)), context=context)
        if not await asyncio.to_thread(answer.read, response):
            return _updated(response)
        for _ in range(self.corrections):
            if not (wanted := answer.wanted()):
                break
            try:
                corrected = await ChatModelReasoner(request.model).acorrect(wanted, get_config())
            except ModelError as error:
                answer.failure = str(error)
                break
            await asyncio.to_thread(answer.correct, corrected)
        return await asyncio.to_thread(answer.finish, response)


def convcoa_tool(
    graph: Runnable[Any, Any],
    *,
    name: str = "ask_documents",
    description: str = "Answer a question from the documents, with citations. Takes a question that is clear by itself.",
) -> BaseTool:
    """A compiled graph as the tool of an agent: the answer with its sources, and the cited documents as artifact.

    Example:
        >>> from langchain_core.runnables import RunnableLambda
        >>> graph = RunnableLambda(lambda inputs: {"answer": "In 1931.", "unsupported": [], "citations": []})
        >>> convcoa_tool(graph).invoke({"question": "When did the bridge open?"})
        'In 1931.'
    """

    def ask(question: str) -> tuple[str, list[Document]]:
        return _told(graph.invoke({"question": question}))

    async def aask(question: str) -> tuple[str, list[Document]]:
        return _told(await graph.ainvoke({"question": question}))

    return StructuredTool.from_function(ask, aask, name=name, description=description, response_format="content_and_artifact")


def _told(output: Mapping[str, Any]) -> tuple[str, list[Document]]:
    """The output of a turn as the text of a tool, and its citations as documents."""
    lines = [output["answer"], *(f"Not verified: {sentence}" for sentence in output["unsupported"])]
    lines += [f"[{n}] {one['source']}: {one['quote']}" for n, one in enumerate(output["citations"], 1)]
    cited = [Document(one["quote"], id=one["id"], metadata={"source": one["source"]}) for one in output["citations"]]
    return "\n".join(lines), cited


class _Answer:
    """One reply of an agent's model, from the request to the verified message."""

    def __init__(self, settings: VerifiedAnswers, request: ModelRequest[Any]) -> None:
        self.config = get_config()  # For the model's call. In a stream, this config hides the reply: a gate shows sentences.
        self.failure = ""  # Why the model gave no corrections.
        self._settings = settings
        turns = history_pairs(request.messages)
        self._question = turns[-1][0] if turns else ""
        self._documents = evidence_of(request.messages, settings.evidence)
        # Earlier answers are no evidence: nobody may have verified them.
        self._checker = Checker(self._documents, (), settings.verifier, self._question, settings.threshold, keep_marks=False)
        self._draft: list[CheckedSentence] = []
        self._confirmed: list[str] = []
        self._gate: SentenceGate | None = None
        if self._documents and is_followed(self.config):
            self._gate = SentenceGate(self._checker, show)
            self.config = merge_configs(self.config, {"tags": [TAG_NOSTREAM], "callbacks": [_Watcher(self._gate)]})

    def read(self, response: ModelResponse[Any]) -> bool:
        """Check the answer. Returns False if the reply is not an answer, such as a tool call."""
        message = response.result[-1] if response.result else None
        if not isinstance(message, AIMessage) or not message.text.strip():
            return False
        if message.tool_calls or message.invalid_tool_calls:
            self._show_calls(message)
            return False
        self._draft = self._checker.check(clean(message.text))
        return True

    def _show_calls(self, message: AIMessage) -> None:
        """Stream the rest of a message whose first sentences were shown and which ends in tool calls."""
        if self._gate is not None and self._gate.shown:
            marks = CitationFilter(len(self._documents))
            text = "".join(one.shown(marks) for one in self._checker.check(clean(message.text))) + marks.close()
            if not text.startswith(self._gate.shown):
                return  # Another model's sentences were shown, so LangGraph streams this message whole.
            message.id, rest = self._gate.message_id, text.removeprefix(self._gate.shown)
            calls = [
                tool_call_chunk(name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=n)
                for n, call in enumerate(message.tool_calls)
            ]
            push_message(cast("Any", AIMessageChunk(content=rest, tool_call_chunks=calls, id=message.id)), state_key=None)

    def wanted(self) -> CorrectRequest | None:
        """The request for corrections; None if every sentence stands, or there is no evidence to correct them with."""
        failed = [n for n, sentence in enumerate(self._draft) if not sentence.stands]
        if not failed or not self._documents:
            return None
        items = [Unsolved(n, self._question, self._draft[n].plain, []) for n in failed]
        draft = [sentence.plain for sentence in self._draft]
        return CorrectRequest(self._question, items, evidence=self._documents, draft=draft)

    def correct(self, corrected: Corrected) -> None:
        """Apply the corrections. A sentence without one is removed, as in the graph."""
        if not corrected.corrections:
            self.failure = "the reply with corrections could not be read"
            return
        item = chain_item("", self._question)
        _, text, confirmed = apply_to_answer([item], self._draft, corrected.corrections, "", self._checker)
        self._confirmed += confirmed
        self._draft = self._checker.check(text, self._confirmed)

    def finish(self, response: ModelResponse[Any]) -> ExtendedModelResponse[Any]:
        """The response with the verified message, and its update of the state."""
        message = cast("AIMessage", response.result[-1])
        unsupported = [sentence.plain for sentence in self._draft if not sentence.stands]
        citations: list[Citation] = []
        if self._documents:
            if self._settings.drops:
                self._draft, unsupported = [sentence for sentence in self._draft if sentence.stands], []
            message, citations = self._verified(message)
        emit({"type": "answer", "unsupported": unsupported, "failure": self.failure})
        changed = ModelResponse([*response.result[:-1], message], response.structured_response)
        confirmed = [sentence.plain for sentence in self._draft if sentence.plain in self._confirmed]
        return _updated(changed, citations=citations, unsupported=unsupported, confirmed=confirmed)

    def _verified(self, message: AIMessage) -> tuple[AIMessage, list[Citation]]:
        """The message with the verified text, its annotations and marks; and the citations."""
        marks = CitationFilter(len(self._documents))
        text, refused = "", []
        for sentence in self._draft:
            shown = sentence.shown(marks)
            if not sentence.stands:
                start = len(text) + len(shown) - len(shown.lstrip())
                shown = _marked(shown, sentence, self._settings.mark)
                refused.append((start, len(text) + len(shown)))
            text += shown
        gate = self._gate
        # Text that was already shown stays.
        text = (text + marks.close()).strip() or f"{gate.shown if gate else ''}\n\n{NOTHING_FOUND}".strip()
        citations = [citation_of(self._documents[index], index + 1, self._draft) for index in marks.cited]
        titles = {str(document.id): str(document.metadata.get("title") or "") for document in self._documents}
        annotations: list[Any] = [*citation_annotations(text, citations, titles)]
        annotations += [
            {"type": "non_standard_annotation", "value": {"type": "unsupported", "start_index": start, "end_index": end}}
            for start, end in refused
        ]
        others = [block for block in message.content_blocks if block["type"] != "text"]
        changed = {
            "content": [*others, {"type": "text", "text": text, "annotations": annotations}],
            "response_metadata": {**message.response_metadata, "output_version": "v1"},
        }
        if gate is not None and gate.shown and text.startswith(gate.shown):
            changed["id"] = gate.message_id
            if rest := text[len(gate.shown) :]:
                show(rest, gate.message_id)
        return message.model_copy(update=changed), citations


def _updated(response: ModelResponse[Any], **values: list[Any]) -> ExtendedModelResponse[Any]:
    """The response with values of `VerifiedState`. The other fields become empty, as they belong to an earlier answer."""
    return ExtendedModelResponse(response, Command(update={"citations": [], "unsupported": [], "confirmed": []} | values))


class _Watcher(BaseCallbackHandler):
    """Feeds a gate with the text of a reply while the model writes it."""

    def __init__(self, gate: SentenceGate) -> None:
        self._gate, self._text, self._open = gate, "", True

    def on_chat_model_start(self, *_: Any, **__: Any) -> None:
        # A retry begins the reply again. If sentences of another reply, or of another model, were shown, none are added.
        self._text, self._open = "", not self._gate.shown

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, **_: Any) -> None:
        self._text += chunk.message.text if isinstance(chunk, ChatGenerationChunk) else str(token)
        if self._open:
            self._gate.feed(clean(self._text))


def evidence_of(messages: Sequence[AnyMessage], tools: Collection[str] | None = None) -> list[Document]:
    """The results of the tools of a conversation as documents, the newest message first; errors of tools are left out.

    The documents of a result's artifact count instead of its text. `tools` are the names of the tools that count; None: all.
    """
    results = [
        message
        for message in reversed(messages)
        if isinstance(message, ToolMessage) and message.status != "error" and (tools is None or message.name in tools)
    ]
    return merge_findings([finding(n, one.name or "", _documents_of(one)) for n, one in enumerate(results)]).documents


def _documents_of(message: ToolMessage) -> list[Document]:
    found = [one for one in _documents_in(message.artifact) if one.page_content.strip()]
    if not found and message.text.strip():
        found = [Document(message.text, metadata={"source": message.name or "tool"})]
    return [
        Document(clean(one.page_content[:_MOST_CHARACTERS]), id=one.id or f"{message.tool_call_id}-{n}", metadata=one.metadata)
        for n, one in enumerate(found, 1)
    ]


def _documents_in(artifact: Any, depth: int = 0) -> Iterator[Document]:
    """The documents in an artifact: in lists, or in the values of mappings."""
    if isinstance(artifact, Document):
        yield artifact
    elif isinstance(artifact, Mapping) and isinstance(artifact.get("page_content"), str):
        # Strict checkpoints and LangGraph's server keep a document as its fields.
        id_, metadata = artifact.get("id"), artifact.get("metadata")
        kept = dict(metadata) if isinstance(metadata, Mapping) else {}
        yield Document(artifact["page_content"], id=None if id_ is None else str(id_), metadata=kept)
    elif isinstance(artifact, list | tuple | Mapping) and depth < 3:  # Deeper nesting is not searched.
        for value in artifact.values() if isinstance(artifact, Mapping) else artifact:
            yield from _documents_in(value, depth + 1)


def _marked(shown: str, sentence: CheckedSentence, mark: str) -> str:
    """Put the mark before a sentence's full stop, or under a table."""
    if not mark:
        return shown
    return f"{shown}\n\n{mark}" if sentence.block else before_stop(shown, f" {mark}")
