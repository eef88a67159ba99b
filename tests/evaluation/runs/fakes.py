"""What the tests of runs share: small conversations, methods that ask a model, a server that answers from the question."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda

from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.evaluation.methods.prompting import Answerer
from langgraph_convcoa.evaluation.records import Outcome, Questions, Turn, sample_conversations
from langgraph_convcoa.evaluation.runs.folder import RunFolder
from langgraph_convcoa.reasoning.models import call_error, load_chat_model
from tests.openai_server import OpenAIServer, prompt_of


def questions_of(conversations: int = 3, turns: int = 2) -> Questions:
    """Conversations of questions whose answers are numbers."""
    rows = []
    for c in range(conversations):
        said: list[tuple[str, str]] = []
        for t in range(turns):
            question, answer = f"What is number {c}-{t}?", f"{1000 + 10 * c + t}"
            rows.append(Query(f"q{c}-{t}", question, tuple(said), answer=answer, conversation=f"c{c}"))
            said.append((question, answer))
    return sample_conversations(rows)


def asking(model: BaseChatModel, calls: int = 1, malformed: int = 0) -> Answerer:
    """A method that shows the model the history and the question `calls` times, and answers with the last reply."""

    async def answer(turn: Turn, config: RunnableConfig) -> Outcome:
        said = [f"{question} {reply}" for question, reply in turn.history]
        text = ""
        for call in range(calls):
            prompt = "\n".join([*said, f"step {call}", turn.question])
            try:
                text = (await model.ainvoke([HumanMessage(prompt)], config)).text
            except Exception as error:
                raise call_error(error, model) from error
        return Outcome(text, malformed=malformed)

    return RunnableLambda(answer)


def instant(reply: Callable[[Turn], str]) -> Answerer:
    """A method without a model."""

    async def answer(turn: Turn) -> Outcome:
        return Outcome(reply(turn))

    return RunnableLambda(answer)


def number_in(body: dict[str, Any]) -> str:
    """The right answer to the question that a request ends with."""
    conversation, turn = re.findall(r"number (\d+)-(\d+)\?", prompt_of(body))[-1]
    return f"It is {1000 + 10 * int(conversation) + int(turn)}."


def model_of(server: OpenAIServer, **settings: Any) -> BaseChatModel:
    return load_chat_model("test", base_url=server.base_url, max_retries=0, **settings)


def folder(path: Path, **settings: Any) -> RunFolder:
    return RunFolder(path, {"data": "made", **settings})
