"""Fakes that the tests share: a scripted model, retrievers over a few facts or fixed documents, actions that wait or fail."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.retrievers import BaseRetriever
from pydantic import BaseModel, Field, PrivateAttr

from langgraph_convcoa.actions.base import ActionRequest
from langgraph_convcoa.chain import ChainItem, Status
from langgraph_convcoa.nodes.approve import Decided, Review, decide
from langgraph_convcoa.verification.verifier import LexicalVerifier

WORDS = LexicalVerifier(0.4)
"""A verifier that compares words, so that a reader of a test can see its verdicts."""

FACTS = {
    "hopfield-1982": "John Hopfield described the Hopfield network in 1982. "
    "It stores patterns as minima of an energy function.",
    "sparsemax-2016": "Sparsemax was introduced by Martins and Astudillo in 2016. It gives sparse probabilities.",
    "dpr-2020": "Dense passage retrieval was published by Karpukhin and colleagues in 2020. It trains two encoders.",
    "nobel-2024": "The Nobel Prize in Physics 2024 went to John Hopfield and Geoffrey Hinton.",
}


def documents() -> list[Document]:
    return [Document(text, id=id_, metadata={"source": f"{id_}.md"}) for id_, text in FACTS.items()]


def node(sub: str, guess: str = "", action: str = "knowledge_retrieval", **more: Any) -> dict[str, Any]:
    return {"action": action, "sub": sub, "guess_answer": guess, "missing_flag": not guess, "action_input": "", **more}


def plan(*nodes: dict[str, Any], final: str = "", optimized: str = "optimized?") -> str:
    return json.dumps({"optimized_question": optimized, "chain": list(nodes), "final_answer": final})


def direct(answer: str, optimized: str = "optimized?") -> str:
    """A planner's reply that answers from the evidence at once."""
    return plan(final=answer, optimized=optimized)


VAGUE, BACK = "When was it described or introduced?", "Do you mean the Hopfield network or sparsemax?"


def asking(clarification: str = BACK, **more: Any) -> str:
    """A planner's reply that asks a clarifying question, for example after the question `VAGUE`."""
    return json.dumps({**json.loads(direct("")), "clarification": clarification, **more})


def corrections(*answers: str, supported: bool = True, final: str = "", first: int = 1) -> str:
    """The reply to a correction prompt: answers numbered from `first`, each supported by [1], and the final answer."""
    status = "supported" if supported else "none"
    entries = [{"index": n, "answer": a, "evidence": [1], "status": status} for n, a in enumerate(answers, first)]
    return json.dumps({"answers": entries, "final_answer": final})


def chain_item(
    status: Status = "kept", answer: str = "An answer.", evidence: Sequence[str] = ("a",), **more: Any
) -> ChainItem:
    """An item of a turn's chain."""
    base = {"action": "x", "sub_question": "s?", "guess_answer": "", "action_input": "", "score": 1.0, "reason": ""}
    return {**base, "answer": answer, "status": status, "evidence": list(evidence), **more}  # type: ignore[typeddict-item]


async def turn(
    graph: Any, inputs: Any, config: Any = None, *, asynchronous: bool = False, streamed: bool = False, **more: Any
) -> dict[str, Any]:
    """Run a turn, plain or asynchronous, streamed or not; the streamed text must equal the answer."""
    if isinstance(inputs, str):
        inputs = {"question": inputs}
    if not streamed:
        return dict(await graph.ainvoke(inputs, config, **more) if asynchronous else graph.invoke(inputs, config, **more))
    more["stream_mode"] = ["messages", "values"]
    if asynchronous:
        parts = [part async for part in graph.astream(inputs, config, **more)]
    else:
        parts = list(graph.stream(inputs, config, **more))
    output: dict[str, Any] = parts[-1][1]
    assert "".join(part[0].text for mode, part in parts if mode == "messages") == output["answer"]
    return output


def decided_by(response: Any, reviews: Sequence[Review]) -> list[Decided]:
    """The decisions that the graph reads from a person's response to the interrupt for these reviews."""

    def respond(value: Any, response_schema: type[BaseModel]) -> Any:
        return response_schema.model_validate(response)

    with mock.patch("langgraph_convcoa.nodes.approve.interrupt", respond):
        return decide(reviews)


class FixedRetriever(BaseRetriever):
    """Finds the same documents for every question."""

    found: list[Document]
    asked: list[str] = Field(default_factory=list)

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        self.asked.append(query)
        return self.found


class KeywordRetriever(BaseRetriever):
    """Finds the facts that share the most words with the query."""

    k: int = 2
    _asked: list[str] = PrivateAttr(default_factory=list)

    @property
    def asked(self) -> list[str]:
        return self._asked

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        self._asked.append(query)
        words = set(query.lower().replace("?", "").replace(".", "").split())

        def shared(document: Document) -> int:
            return len(words & set(document.page_content.lower().replace(".", "").split()))

        found = sorted((d for d in documents() if shared(d)), key=shared, reverse=True)
        return found[: k or self.k]


class ScriptedModel(BaseChatModel):
    """A chat model with replies from a list, in order, or from a function of the prompt; streams in small pieces."""

    # A reply is a text, a message with tool calls, or an error to raise.

    replies: list[Any] = Field(default_factory=list)
    by_prompt: Callable[[str], str] | None = None
    _prompts: list[str] = PrivateAttr(default_factory=list)

    @property
    def prompts(self) -> list[str]:
        return self._prompts

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> ScriptedModel:
        """Return the model itself; its replies may be messages with tool calls."""
        return self

    def _next(self, messages: list[BaseMessage]) -> Any:
        prompt = "\n".join(message.text for message in messages)
        self._prompts.append(prompt)
        reply = self.by_prompt(prompt) if self.by_prompt else self.replies.pop(0)
        if isinstance(reply, BaseException):
            raise reply
        return reply if isinstance(reply, AIMessage) else str(reply)

    def _message(self, messages: list[BaseMessage]) -> AIMessage:
        reply = self._next(messages)
        return reply if isinstance(reply, AIMessage) else AIMessage(reply)

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        message = self._message(messages).model_copy(update={"usage_metadata": usage})
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
        reply = self._message(messages)
        for start in range(0, len(reply.text), 4):
            yield ChatGenerationChunk(message=AIMessageChunk(reply.text[start : start + 4]))
        for call in reply.tool_calls:
            piece = tool_call_chunk(name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=0)
            yield ChatGenerationChunk(message=AIMessageChunk("", tool_call_chunks=[piece]))
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        yield ChatGenerationChunk(message=AIMessageChunk("", usage_metadata=usage))


class WaitingAction:
    """An action that waits, then returns one document or raises `error`."""

    def __init__(self, name: str, seconds: float = 0.0, error: Exception | None = None, deepens: bool = False) -> None:
        self.name = name
        self.description = f"looks up things of the kind {name}"
        self.deepens = deepens
        self.seconds = seconds
        self.error = error
        self.requests: list[ActionRequest] = []
        self.running = 0
        self.most_running = self.least_running = 0

    async def retrieve(self, request: ActionRequest) -> list[Document]:
        self.requests.append(request)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            while self.most_running < self.least_running:
                await asyncio.sleep(0.01)
            await asyncio.sleep(self.seconds)
        finally:
            self.running -= 1
        if self.error is not None:
            raise self.error
        text = f"{request.sub_question.rstrip('?')}: {request.guess_answer or 'Fact.'}"
        return [Document(text, id=f"{self.name}-{request.sub_question}")]


class WebAction(WaitingAction):
    """Finds its text `deeper` only in a deeper look-up."""

    def __init__(self, name: str, deeper: str) -> None:
        super().__init__(name, deepens=True)
        self.deeper = deeper

    async def retrieve(self, request: ActionRequest) -> list[Document]:
        self.requests.append(request)
        return [Document("Only a snippet." if request.depth == 1 else self.deeper, id=f"depth-{request.depth}")]
