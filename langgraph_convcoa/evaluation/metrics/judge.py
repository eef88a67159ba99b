"""GPT-EM: a chat model says whether an answer holds the right one by its meaning (Pan et al. 2024a, sec. 3.1, app. D)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig

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
    """What a judge said.

    Attributes:
        right: Whether the answer holds the right one; None where the reply says neither.
        reply: The reply, shortened; empty where the judge was not asked.
    """

    right: bool | None
    reply: str = ""


class Judge:
    """A chat model as judge of answers; it may be another one than the model whose answers they are.

    Example:
        >>> from langchain_core.language_models import FakeListChatModel
        >>> judge = Judge(FakeListChatModel(responses=["1", "maybe"]))
        >>> judge.judge_sync("When was she born?", ["1815"], "In the year 1815 [1].")
        Verdict(right=True, reply='1')
        >>> judge.judge_sync("When was she born?", ["1815"], "In the nineteenth century.")
        Verdict(right=None, reply='maybe')
    """

    def __init__(self, model: str | BaseChatModel, *, base_url: str | None = None) -> None:
        """Take a model.

        Args:
            model: A chat model or a name, see `load_chat_model`.
            base_url: An OpenAI-compatible server that has it.

        Raises:
            ModelError: It cannot be built.
        """
        self.model = load_chat_model(model, base_url=base_url).model_copy(update={"disable_streaming": True})

    async def judge(
        self, question: str, references: Sequence[str], answer: str, config: RunnableConfig | None = None
    ) -> Verdict:
        """Ask whether an answer is right: one call of the model, none for an empty answer, which is wrong.

        Args:
            question: As it was put, or a form of it that stands alone.
            references: The answers that count as right.
            answer: As printed; the judge does not see its citation marks.
            config: Of the call.

        Raises:
            InputError: There is no reference.
            ModelError: The model does not answer.
        """
        asked = _prompt(question, references, answer)
        if asked is None:
            return Verdict(False)
        try:
            reply = await self.model.ainvoke(asked, config)
        except Exception as error:
            raise call_error(error, self.model) from error
        return read_verdict(reply.text)

    def judge_sync(
        self, question: str, references: Sequence[str], answer: str, config: RunnableConfig | None = None
    ) -> Verdict:
        """As `judge`, where no event loop runs."""
        asked = _prompt(question, references, answer)
        if asked is None:
            return Verdict(False)
        try:
            reply = self.model.invoke(asked, config)
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
    """How far a judge agrees with a measure of strings.

    Attributes:
        measure: The measure, such as "em".
        answers: How many have both.
        share: Share of them on which both say the same.
        kappa: The same beyond chance (Cohen 1960); None where both say one and the same of all answers.
        only_judge: Right for the judge alone.
        only_measure: Right for the measure alone.
    """

    measure: str
    answers: int
    share: float
    kappa: float | None
    only_judge: int
    only_measure: int


def judge_agreement(answers: Sequence[Answered], measures: Sequence[str] = ("em", "cover_em")) -> list[Agreement]:
    """How far the judge's verdicts agree with exact match and cover-EM.

    Args:
        answers: Those without a verdict or without the measure are passed over.
        measures: Names of measures that are 0 or 1.

    Returns:
        One for each measure; none for one that no judged answer has.

    Example:
        >>> both = [{"gpt_em": n % 2, "em": n % 4 == 1} for n in range(8)]
        >>> rows = [Answered("ours", str(n), "c", "?", 1, ("x",), metrics=said) for n, said in enumerate(both)]
        >>> [(found.share, round(found.kappa, 2)) for found in judge_agreement(rows)]
        [(0.75, 0.5)]
    """
    found = []
    for measure in measures:
        pairs = [
            (answer.metrics[JUDGED] >= 0.5, answer.metrics[measure] >= 0.5)
            for answer in answers
            if JUDGED in answer.metrics and measure in answer.metrics
        ]
        if pairs:
            found.append(_agreement(measure, pairs))
    return found


def _agreement(measure: str, pairs: Sequence[tuple[bool, bool]]) -> Agreement:
    judged, measured = zip(*pairs, strict=True)
    kappa = None
    if len({*judged, *measured}) == 2:
        from sklearn.metrics import cohen_kappa_score

        kappa = float(cohen_kappa_score(judged, measured))
    return Agreement(
        measure=measure,
        answers=len(pairs),
        share=sum(one == other for one, other in pairs) / len(pairs),
        kappa=kappa,
        only_judge=sum(one and not other for one, other in pairs),
        only_measure=sum(other and not one for one, other in pairs),
    )


def _prompt(question: str, references: Sequence[str], answer: str) -> list[HumanMessage] | None:
    """The request; None for an answer that says nothing."""
    right = [_one_line(reference) for reference in dict.fromkeys(references) if reference.strip()]
    if not right:
        raise InputError("A judge needs at least one right answer to compare with.")
    shown = _one_line(strip_citations(answer))
    if not shown:
        return None
    # On one line each, so that no answer can add an "[Output]: 1" of its own below.
    filled = render("judge", question=_one_line(question), ground_truth=" or ".join(right), answer=shown)
    return [HumanMessage(filled.rstrip())]


def _one_line(text: str) -> str:
    return " ".join(text.split())
