"""Which failures end a run, and what is said of each."""

from __future__ import annotations

import httpx
import openai
import pytest

from langgraph_convcoa.errors import InputError, ModelError, RetrievalError
from langgraph_convcoa.evaluation.records import Answered
from langgraph_convcoa.evaluation.runs.failures import Patience, failure, hopeless, unkept
from langgraph_convcoa.evaluation.runs.reply_cache import ReplyCacheError
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
        (status(429), "rate limit"),
        (openai.APITimeoutError(REQUEST), "did not answer in time"),
        (RetrievalError("the index is\ndamaged"), "the index is damaged"),
        (ValueError("sk-secret"), "the method failed: ValueError"),
    ],
)
def test_what_is_said(error: Exception, said: str) -> None:
    text = failure(error, ScriptedModel())
    assert said in text
    assert "secret" not in text
    assert "\n" not in text


def record(n: int, error: str = "no") -> Answered:
    return Answered("m", str(n), "c", "?", 1, (), error=error)


def test_an_answer_releases_what_was_held_back() -> None:
    patience = Patience(3)
    assert patience.take(record(1), status(401)) == []
    assert patience.take(record(2), status(401)) == []
    assert [one.id for one in patience.take(record(3, ""), None)] == ["1", "2", "3"]
    assert [one.id for one in patience.take(record(4), status(500))] == ["4"]
    assert patience.take(record(5), status(401)) == []
    assert [one.id for one in patience.close(4)] == ["5"]


def test_an_answer_that_was_under_way_before_says_nothing_of_later_failures() -> None:
    patience = Patience(3)
    begun = patience.failures
    assert patience.take(record(1), status(401)) == []
    assert [one.id for one in patience.take(record(2, ""), None, begun)] == ["2"]
    later = patience.failures
    assert patience.take(record(3), status(401)) == []
    assert [one.id for one in patience.take(record(4, ""), None, later)] == ["1", "4"]
    assert [one.id for one in patience.close(2)] == ["3"]


def test_too_many_in_a_row_end_the_run() -> None:
    patience = Patience(2)
    patience.take(record(1), status(401))
    with pytest.raises(ModelError, match=r"no \(2 questions in a row failed so"):
        patience.take(record(2), status(401))
    patience = Patience()
    patience.take(record(1), status(401))
    with pytest.raises(ModelError, match="1 question in a row"):
        patience.close(0)


def test_a_reply_that_is_not_kept_is_found_behind_other_errors() -> None:
    lost = ReplyCacheError("disk full")
    assert unkept(wrapped(lost)) is lost
    assert unkept(InputError("x")) is None
