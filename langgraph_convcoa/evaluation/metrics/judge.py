"""A chat model as judge of answers: GPT-EM, marks on four criteria, and the better one of two answers.

GPT-EM says whether an answer holds the right one by its meaning (Pan et al. 2024a, section 3.1, appendix D).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.metrics.marks import EMPTY, NO_MARKS, SAME, Case, Marks, one_line, read_better, read_marks
from langgraph_convcoa.evaluation.records import Answered
from langgraph_convcoa.reasoning.models import call_error, load_chat_model
from langgraph_convcoa.reasoning.parsing import without_thought
from langgraph_convcoa.reasoning.prompts import render
from langgraph_convcoa.text.matching import strip_citations

JUDGED = "gpt_em"
"""The name of the judge's measure among those of an answer."""

_OUTPUT = re.compile(r"^\W*output\W*", re.IGNORECASE)
_VERDICT = re.compile(r"^[\"'`*\[(]*(1|0|yes|no)[\"'`*\])]*(?=$|[.!,;:](?:\s|$))(?P<rest>.*)$", re.IGNORECASE)
_OPPOSITE = {"1": r"\b0\b", "0": r"\b1\b", "yes": r"\bno\b", "no": r"\byes\b"}


class Judge:
    """A chat model as judge of answers; it may be another one than the model whose answers they are.

    Example:
        >>> import asyncio
        >>> from langchain_core.language_models import FakeListChatModel
        >>> judge = Judge(FakeListChatModel(responses=["1", "maybe"]))
        >>> asyncio.run(judge.judge("When was she born?", ["1815"], "In the year 1815 [1]."))
        True
    """

    def __init__(self, model: str | BaseChatModel) -> None:
        self.model = load_chat_model(model).model_copy(update={"disable_streaming": True})

    async def judge(self, question: str, references: Sequence[str], answer: str) -> bool | None:
        """GPT-EM: ask whether an answer is right: one call of the model, none for an empty answer, which is wrong.

        The judge does not see citation marks. Raises InputError without a reference.
        """
        right = [one_line(reference) for reference in dict.fromkeys(references) if reference.strip()]
        if not right:
            raise InputError("A judge needs at least one right answer to compare with.")
        shown = one_line(strip_citations(answer))
        if not shown:
            return False
        # On one line each, so that no answer can add an "[Output]: 1" of its own below.
        filled = render("judge", question=one_line(question), ground_truth=" or ".join(right), answer=shown)
        return read_verdict(await self._ask(filled))

    async def marks(self, case: Case, answer: str) -> Marks | None:
        """Ask for the marks of an answer: one call, none for an empty answer, which has no marks. None of an unreadable reply.

        The judge does not see citation marks.
        """
        shown = one_line(strip_citations(answer))
        if not shown:
            return NO_MARKS
        return read_marks(await self._ask(render("judge_marks", case=case.text(), answer=shown)))

    async def better(self, case: Case, first: str, second: str) -> tuple[str, str] | None:
        """Ask which of two answers is better, shown in this order: "A", "B" or "tie", and why; None of an unreadable reply.

        One call, none where both say the same or one is empty.
        """
        one, other = (one_line(strip_citations(answer)) for answer in (first, second))
        if one == other:
            return "tie", SAME
        if not (one and other):
            return ("A" if one else "B"), EMPTY
        return read_better(await self._ask(render("judge_pair", case=case.text(), first=one, second=other)))

    async def _ask(self, prompt: str) -> str:
        try:
            reply = await self.model.ainvoke([HumanMessage(prompt.rstrip())])
        except Exception as error:
            raise call_error(error, self.model) from error
        return without_thought(reply.text)


def read_verdict(reply: str) -> bool | None:
    """A judge's reply, read strictly: its first line must be 1 or yes, or 0 or no, alone or before a remark.

    None where it is neither.
    """
    found = _VERDICT.match(_OUTPUT.sub("", reply.strip()).partition("\n")[0].strip())
    if found is None or re.search(_OPPOSITE[found[1].lower()], found["rest"], re.IGNORECASE):
        return None
    return found[1].lower() in ("1", "yes")


def judge_agreement(answers: Sequence[Answered], measures: Sequence[str] = ("em", "cover_em")) -> list[dict[str, Any]]:
    """Agreement of the judge's verdicts with measures that are 0 or 1; none for one that no judged answer has.

    `kappa` is the agreement beyond chance (Cohen 1960), None where both say the same of all answers; `only_judge` and
    `only_measure` are right for one of the two alone. Answers without a verdict or the measure do not count.

    Example:
        >>> both = [{"gpt_em": n % 2, "em": n % 4 == 1} for n in range(8)]
        >>> rows = [Answered("ours", str(n), "c", "?", 1, ("x",), metrics=said) for n, said in enumerate(both)]
        >>> [(found["share"], round(found["kappa"], 2)) for found in judge_agreement(rows)]
        [(0.75, 0.5)]
    """
    found = []
    for measure in measures:
        said = [answer.metrics for answer in answers if {JUDGED, measure} <= answer.metrics.keys()]
        pairs = [(metrics[JUDGED] >= 0.5, metrics[measure] >= 0.5) for metrics in said]
        if pairs:
            judged, measured = zip(*pairs, strict=True)
            found.append(
                {
                    "measure": measure,
                    "answers": len(pairs),
                    "share": sum(one == other for one, other in pairs) / len(pairs),
                    "kappa": _kappa(judged, measured),
                    "only_judge": sum(one and not other for one, other in pairs),
                    "only_measure": sum(other and not one for one, other in pairs),
                }
            )
    return found


def _kappa(judged: Sequence[bool], measured: Sequence[bool]) -> float | None:
    if len({*judged, *measured}) < 2:
        return None
    from sklearn.metrics import cohen_kappa_score

    return float(cohen_kappa_score(judged, measured))
