"""Replies in nobody's form, empty replies and a failing server: nothing of it stops a run but the failure itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_openai import ChatOpenAI

from experiments.baselines.methods import ALL_METHODS
from experiments.costs.scripted import make_script
from langgraph_convcoa.errors import ModelError
from langgraph_convcoa.evaluation.methods.base import Kit
from langgraph_convcoa.evaluation.methods.registry import make_method
from tests.experiments.baselines.served import ASKING, MalformedServer, ask
from tests.openai_server import OpenAIServer, Reply

SCRIPT = make_script(2, 0.5, questions=2)
# Whatever is said to these is an answer, if perhaps a bad one.
ANY_FORM = {"closed-book", "few-shot", "history-aware-rag"}


@pytest.mark.parametrize("name", ASKING)
def test_replies_in_no_form_are_counted_and_stop_nothing(name: str) -> None:
    with MalformedServer(SCRIPT, 1.0) as server:
        for asked in ask(name, SCRIPT, server=server, max_steps=3):
            assert (asked.outcome.malformed == 0) == (name in ANY_FORM)
            assert asked.requests <= 20


@pytest.mark.parametrize("name", ASKING)
def test_empty_replies_are_counted_and_stop_nothing(name: str) -> None:
    with OpenAIServer(lambda body: "") as server:
        model = ChatOpenAI(model="script", base_url=server.base_url, api_key="none", max_retries=0)
        method = make_method(name, Kit(model, SCRIPT.retriever(), max_steps=3, samples=2), ALL_METHODS)
        outcome = asyncio.run(method.ainvoke(SCRIPT.turns()[0]))
    assert outcome.malformed > 0


@pytest.mark.parametrize(("name", "status"), [*((name, 500) for name in ASKING), ("react", 401), ("ours", 401)])
def test_a_failing_model_is_an_error_in_one_line(name: str, status: int) -> None:
    def fails(body: dict[str, Any]) -> Reply:
        return Reply("failure", status=status)

    with OpenAIServer(fails) as server:
        model = ChatOpenAI(model="script", base_url=server.base_url, api_key="none", max_retries=0)
        method = make_method(name, Kit(model, SCRIPT.retriever(), samples=2), ALL_METHODS)
        with pytest.raises(ModelError, match="refused the key" if status == 401 else "server's side") as caught:
            asyncio.run(method.ainvoke(SCRIPT.turns()[0]))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["ours", "react", "search-in-the-chain", "chain-of-action", "least-to-most"])
def test_now_and_then_a_malformed_reply(name: str) -> None:
    script = make_script(3, 0.5, questions=6)
    with MalformedServer(script, 0.3) as server:
        asked = ask(name, script, server=server, max_steps=5)
    assert len(asked) == 6
    assert any(one.outcome.malformed for one in asked)
    assert any(not one.outcome.malformed for one in asked)
