"""GPT-EM: a chat model says whether an answer holds the right one by its meaning (Pan et al. 2024a, sec. 3.1, app. D)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.metrics.answers import strip_citations
from langgraph_convcoa.evaluation.records import Answered
from langgraph_convcoa.reasoning.models import call_error, load_chat_model
from langgraph_convcoa.reasoning.prompts import render

JUDGED = "gpt_em"
"""The name of the judge's measure among those of an answer."""

_LONGEST_REPLY = 300
_OUTPUT = re.compile(r"^\W*output\W*", re.IGNORECASE)
_VERDICT = re.compile(r"^[\"'`*\[(]*(1|0|yes|no)[\"'`*\])]*(?=$|[.!,;:](?:\s|$))(?P<rest>.*)$", re.IGNORECASE)
_OPPOSITE = {"1": r"\b0\b", "0": r"\b1\b", "yes": r"\bno\b", "no": r"\byes\b"}


@dataclass(frozen=True)
class Verdict:
    """A judge's word on an answer."""

    right: bool | None  # whether the answer holds the right one; None where the reply says neither
    reply: str = ""  # the reply, shortened; empty where the judge was not asked


class Judge:
    """A chat model as judge of answers; it may be another one than the model whose answers they are.

    Example:
        >>> import asyncio
        >>> from langchain_core.language_models import FakeListChatModel
        >>> judge = Judge(FakeListChatModel(responses=["1", "maybe"]))
        >>> asyncio.run(judge.judge("When was she born?", ["1815"], "In the year 1815 [1]."))
        Verdict(right=True, reply='1')
    """

    def __init__(self, model: str | BaseChatModel) -> None:
        self.model = load_chat_model(model).model_copy(update={"disable_streaming": True})

    async def judge(self, question: str, references: Sequence[str], answer: str) -> Verdict:
        """Ask whether an answer is right: one call of the model, none for an empty answer, which is wrong.

        The judge does not see citation marks. Raises InputError without a reference.
        """
        right = [_one_line(reference) for reference in dict.fromkeys(references) if reference.strip()]
        if not right:
            raise InputError("A judge needs at least one right answer to compare with.")
        shown = _one_line(strip_citations(answer))
        if not shown:
            return Verdict(False)
        # On one line each, so that no answer can add an "[Output]: 1" of its own below.
        filled = render("judge", question=_one_line(question), ground_truth=" or ".join(right), answer=shown)
        try:
            reply = await self.model.ainvoke([HumanMessage(filled.rstrip())])
        except Exception as error:
            raise call_error(error, self.model) from error
        return read_verdict(reply.text)


def read_verdict(reply: str) -> Verdict:
    """A judge's reply, read strictly: its first line must be 1 or yes, or 0 or no, alone or before a remark.

    Example:
        >>> [read_verdict(text).right for text in ("1", "[Output]: 0", "Yes, both say 1815.")]
        [True, False, True]
        >>> [read_verdict(text).right for text in ("maybe", "Yes, or rather no.", "No idea", "10", "")]
        [None, None, None, None, None]
    """
    shown = reply.strip()
    line = _OUTPUT.sub("", shown).partition("\n")[0].strip()
    found = _VERDICT.match(line)
    right = None
    if found is not None and not re.search(_OPPOSITE[found[1].lower()], found["rest"], re.IGNORECASE):
        right = found[1].lower() in ("1", "yes")
    return Verdict(right, shown[:_LONGEST_REPLY])


@dataclass(frozen=True)
class Agreement:
    """Agreement of a judge with a measure of strings."""

    measure: str  # such as "em"
    answers: int  # how many have both
    share: float  # share of them on which both say the same
    kappa: float | None  # the same beyond chance (Cohen 1960); None where both say one and the same of all answers
    only_judge: int  # right for the judge alone
    only_measure: int  # right for the measure alone


def judge_agreement(answers: Sequence[Answered], measures: Sequence[str] = ("em", "cover_em")) -> list[Agreement]:
    """Agreement of the judge's verdicts with measures that are 0 or 1; none for one that no judged answer has.

    Answers without a verdict or without the measure are passed over.

    Example:
        >>> both = [{"gpt_em": n % 2, "em": n % 4 == 1} for n in range(8)]
        >>> rows = [Answered("ours", str(n), "c", "?", 1, ("x",), metrics=said) for n, said in enumerate(both)]
        >>> [(found.share, round(found.kappa, 2)) for found in judge_agreement(rows)]
        [(0.75, 0.5)]
    """
    found = []
    for measure in measures:
        said = [answer.metrics for answer in answers if {JUDGED, measure} <= answer.metrics.keys()]
        pairs = [(metrics[JUDGED] >= 0.5, metrics[measure] >= 0.5) for metrics in said]
        if pairs:
            judged, measured = zip(*pairs, strict=True)
            found.append(
                Agreement(
                    measure=measure,
                    answers=len(pairs),
                    share=sum(one == other for one, other in pairs) / len(pairs),
                    kappa=_kappa(judged, measured),
                    only_judge=sum(one and not other for one, other in pairs),
                    only_measure=sum(other and not one for one, other in pairs),
                )
            )
    return found


def _kappa(judged: Sequence[bool], measured: Sequence[bool]) -> float | None:
    if len({*judged, *measured}) < 2:
        return None
    from sklearn.metrics import cohen_kappa_score

    return float(cohen_kappa_score(judged, measured))


def _one_line(text: str) -> str:
    return " ".join(text.split())
