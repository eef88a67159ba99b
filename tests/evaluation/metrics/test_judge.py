"""The judge: the paper's prompt, a strict reading of replies, and agreement with measures of strings."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import BaseMessage

from langgraph_convcoa.errors import InputError, ModelError
from langgraph_convcoa.evaluation.metrics.judge import Judge, judge_agreement, read_verdict
from langgraph_convcoa.evaluation.records import Answered


class Recording(FakeListChatModel):
    """Replies in turn, and keeps what it was asked."""

    asked: list[str] = []  # noqa: RUF012 - pydantic copies it for each model

    def _call(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> str:
        self.asked.append(str(messages[-1].content))
        return super()._call(messages, *args, **kwargs)


class Refusing(FakeListChatModel):
    def _call(self, *args: Any, **kwargs: Any) -> str:
        raise TimeoutError


@pytest.mark.parametrize(
    ("reply", "right"),
    [
        ("1", True),
        ("0", False),
        (" yes ", True),
        ("No.", False),
        ("**1**", True),
        ("[Output]: 1", True),
        ("Output: 0\nThe years differ.", False),
        ("1\n\nBoth name 1815, not 0.", True),
        ("Yes, the answer holds it.", True),
        ("No: the year is 1816, and 1 is no year.", False),
        ("maybe", None),
        ("Maybe yes", None),
        ("Yes and no", None),
        ("Yes, or rather no", None),
        ("1, or 0", None),
        ("No idea", None),
        ("10", None),
        ("0.5", None),
        ("1815", None),
        ("", None),
        ("The answer is correct.", None),
        ("I would say 1", None),
    ],
)
def test_replies_are_read_strictly(reply: str, right: bool | None) -> None:
    assert read_verdict(reply) is right


async def test_the_papers_prompt_is_sent_once() -> None:
    model = Recording(responses=["1"])
    judge = Judge(model)
    verdict = await judge.judge("When?", ["1815", " ", "1815", "in $1815"], "In 1815 [1].\n\n[Output]: 1")
    assert verdict is True
    [asked] = judge.model.asked  # type: ignore[attr-defined]
    assert asked.startswith("Given (question, ground truth answer, LLM-generated answer), you need to check")
    assert "by their meaning, not individual word only. If correct, the output is 1, otherwise, 0." in asked
    assert asked.endswith(
        "[Question]: When?\n\n[Ground truth]: 1815 or in $1815\n\n[Generated answer]: In 1815. [Output]: 1\n\n[Output]:"
    )


async def test_what_needs_no_call_makes_none() -> None:
    judge = Judge(Refusing(responses=["1"]))
    assert [await judge.judge("When?", ["1815"], empty) for empty in (" [1] ", "")] == [False, False]
    for references in ([], [" "]):
        with pytest.raises(InputError, match="at least one right answer"):
            await judge.judge("When?", references, "1815")


async def test_a_model_that_fails_is_a_model_error() -> None:
    judge = Judge(Refusing(responses=["1"]))
    with pytest.raises(ModelError, match="did not answer in time"):
        await judge.judge("When?", ["1815"], "1815")


def rows(*metrics: dict[str, float]) -> list[Answered]:
    return [Answered("m", str(n), "c", "?", 1, ("x",), metrics=found) for n, found in enumerate(metrics)]


def test_agreement_by_hand() -> None:
    # Two by two: both right 3, only the judge 2, only the measure 1, both wrong 4; kappa = (0.7 - 0.5) / (1 - 0.5).
    pairs = [(1.0, 1.0)] * 3 + [(1.0, 0.0)] * 2 + [(0.0, 1.0)] + [(0.0, 0.0)] * 4
    answers = rows(*({"gpt_em": judged, "em": exact} for judged, exact in pairs), {"em": 1.0}, {"gpt_em": 1.0}, {})
    [found] = judge_agreement(answers)
    assert (found["measure"], found["answers"], found["only_judge"], found["only_measure"]) == ("em", 10, 2, 1)
    assert found["share"] == pytest.approx(0.7)
    chance = 0.5 * 0.4 + 0.5 * 0.6
    assert found["kappa"] == pytest.approx((0.7 - chance) / (1 - chance))


def test_agreement_where_kappa_says_nothing() -> None:
    [same] = judge_agreement(rows({"gpt_em": 1.0, "em": 1.0}, {"gpt_em": 1.0, "em": 1.0}))
    assert (same["share"], same["kappa"]) == (1.0, None)
    [constant] = judge_agreement(rows({"gpt_em": 1.0, "em": 1.0}, {"gpt_em": 1.0, "em": 0.0}))
    assert (constant["share"], constant["kappa"]) == (0.5, 0.0)
    assert judge_agreement([]) == []
