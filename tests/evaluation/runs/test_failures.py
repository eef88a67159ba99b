"""Which failures end a run, and what is said of each."""

from __future__ import annotations

import httpx
import openai
import pytest

from langgraph_convcoa.errors import InputError, ModelError, RetrievalError
from langgraph_convcoa.evaluation.runs.folder import ReplyCacheError
from langgraph_convcoa.evaluation.runs.run import failure, hopeless, unkept
from langgraph_convcoa.reasoning.models import call_error
from tests.fakes import ScriptedModel

REQUEST = httpx.Request("POST", "http://127.0.0.1/v1")


def status(code: int) -> openai.APIStatusError:
    return openai.APIStatusError("sk-secret", response=httpx.Response(code, request=REQUEST), body=None)


def wrapped(error: Exception) -> ModelError:
    """As the graph raises it."""
    try:
        raise call_error(error, ScriptedModel()) from error
    except ModelError as raised:
        return raised


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (status(401), True),
        (wrapped(status(403)), True),
        (status(404), True),
        (openai.APIConnectionError(request=REQUEST), True),
        (wrapped(httpx.ConnectError("no")), True),
        (status(402), True),
        (wrapped(status(429)), True),
        (wrapped(status(500)), False),
        (openai.APITimeoutError(REQUEST), False),
        (httpx.ConnectTimeout("slow"), False),
        (ValueError("a method's own"), False),
    ],
)
def test_hopeless(error: Exception, expected: bool) -> None:
    assert hopeless(error) is expected


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (wrapped(status(429)), "rate limit"),
        (wrapped(openai.APITimeoutError(REQUEST)), "did not answer in time"),
        (status(500), "the method failed (500)"),
        (RetrievalError("the index is\ndamaged"), "the index is damaged"),
        (ValueError("sk-secret"), "the method failed (ValueError)"),
    ],
)
def test_what_is_said(error: Exception, said: str) -> None:
    text = failure(error)
    assert said in text
    assert "secret" not in text
    assert "\n" not in text


def test_a_reply_that_is_not_kept_is_found_behind_other_errors() -> None:
    lost = ReplyCacheError("disk full")
    assert unkept(wrapped(lost)) is lost
    assert unkept(InputError("x")) is None
