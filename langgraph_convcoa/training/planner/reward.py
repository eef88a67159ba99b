"""The reward of a whole turn for the plan that led to it (Pan et al. 2024b, appendix I.3).

R = R_final + (1 / n) sum R_sub[i] + R_efficiency, of n sub-questions: R_final is 1 for a final answer that matches, R_sub +0.5
for a guess that the evidence bears out and -1 for one that it does not and that stands uncorrected, R_efficiency -0.05 for
each retrieval.

What the paper leaves open is decided so:

- **Declined.** A sub-question without a guess earns 0: there is nothing to verify.
- **Corrected.** A guess that another answer took the place of, be it the nearest fact (`partial`), earns 0: it was wrong, and
  does not stand.
- **Recalled.** A sub-question that the knowledge set answered earns 0; what it saves is its retrieval.
- **Failed.** A guess whose look-up failed earns 0, since no evidence speaks against it; the look-up was made and is counted.
- **No sub-question.** An empty chain is one look-up of the question itself. An answer that the plan gave at once is its guess
  and is judged as one (n = 1), so that guessing there is no way past R_sub; without an answer the mean is 0.
- **Malformed.** A plan that is not exactly the JSON that the prompt asks for is not played. Its reward is one constant, below
  that of any plan that can be played: the tolerant reader of replies takes broken JSON for an empty chain, which trained
  models find out.
- **A plain refusal** matches nothing, whatever the nearest passage that it quotes; nor does a sentence that claims nothing, as
  "The documents do not say whether it was 1981 or 1982", unless it stands in the evidence: a plan could list there what it
  does not know.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from langgraph_convcoa.chain import SOLVED, ChainItem
from langgraph_convcoa.errors import InputError, one_of
from langgraph_convcoa.reasoning.extractive.coverage import NOTHING
from langgraph_convcoa.reasoning.parsing import CHAIN_SCHEMA, without_thought
from langgraph_convcoa.state import ConvCoAOutput
from langgraph_convcoa.text.citations import without_marks
from langgraph_convcoa.text.matching import match_answer
from langgraph_convcoa.verification.sentences import statements

Match = Literal["em", "cover_em", "f1"]
Verdict = Literal["kept", "hallucinated", "corrected", "declined", "recalled", "failed"]
"""What became of the guess of a sub-question."""
Judge = Callable[[str, str, Sequence[str]], float | bool | Awaitable[float | bool]]
"""(question, answer, references) -> whether the answer matches, or how well, in [0, 1]; plain or async."""
Own = Callable[[str, ConvCoAOutput, Sequence[str]], float | Awaitable[float]]
"""(plan as written, output of the turn, references) -> a further reward; plain or async."""

MOST_RETRIEVALS = 12
"""Two look-ups for each of six sub-questions, the longest chain by default; `Environment` knows how many a plan can make."""
_TYPES: Mapping[str, Any] = {"object": dict, "array": list, "string": str, "boolean": bool}


@dataclass(frozen=True)
class RewardSettings:
    """The weights of the reward's parts, with the paper's values, and what counts as a match.

    Attributes:
        final: R_final of an answer that matches.
        kept: R_sub of a guess that the evidence bears out.
        hallucinated: R_sub of a guess that it does not and that stands uncorrected.
        retrieval: What each retrieval costs.
        malformed: The whole reward of a plan that is not of the form asked for.
        match: "em" (the paper's), "cover_em", for answers that are sentences and not spans, "f1", or a judge.
        least_f1: The F1 from which an answer matches by "f1".
        own: A reward of your own, added to that of every plan that is played.

    Raises:
        InputError: A weight is no finite number, `match` is unknown, or a malformed plan could earn as much as one that is
            played.

    Example:
        >>> RewardSettings(match="f1").least_f1
        0.5
        >>> RewardSettings(malformed=-1)
        Traceback (most recent call last):
        langgraph_convcoa.errors.InputError: malformed must be below the worst reward of a plan that is played, -1.6, not -1.
    """

    final: float = 1.0
    kept: float = 0.5
    hallucinated: float = -1.0
    retrieval: float = 0.05
    malformed: float = -2.0
    match: Match | Judge = "cover_em"
    least_f1: float = 0.5
    own: Own | None = None

    def __post_init__(self) -> None:
        for name in ("final", "kept", "hallucinated", "retrieval", "malformed", "least_f1"):
            if not math.isfinite(getattr(self, name)):
                raise InputError(f"{name} must be a finite number, not {getattr(self, name)}.")
        if not callable(self.match):
            one_of("match", self.match, get_args(Match))
        self.check()

    def check(self, retrievals: int = MOST_RETRIEVALS) -> None:
        """Raise InputError where a malformed plan could earn as much as one that is played, with so many look-ups at most."""
        worst = min(self.final, 0) + min(self.kept, self.hallucinated, 0) - max(self.retrieval, 0) * retrievals
        if self.malformed >= worst:
            raise InputError(
                f"malformed must be below the worst reward of a plan that is played, {worst:g}, not {self.malformed:g}."
            )


@dataclass(frozen=True)
class TurnReward:
    """The reward of a turn, its parts and what they were counted from.

    Attributes:
        final: R_final.
        sub_questions: The mean of R_sub.
        efficiency: R_efficiency.
        own: The user's own reward.
        penalty: The reward of a malformed plan, whose other parts are 0.
        fault: What is wrong with a malformed plan; "" for one that was played.
        matched: How well the final answer matches, in [0, 1].
        n: The sub-questions of the plan.
        verdicts: What became of each guess; of an empty chain, of the answer given at once.
        retrievals: How often something was looked up.
    """

    final: float = 0.0
    sub_questions: float = 0.0
    efficiency: float = 0.0
    own: float = 0.0
    penalty: float = 0.0
    fault: str = ""
    matched: float = 0.0
    n: int = 0
    verdicts: tuple[Verdict, ...] = ()
    retrievals: int = 0

    @property
    def total(self) -> float:
        """R."""
        return self.final + self.sub_questions + self.efficiency + self.own + self.penalty

    def figures(self) -> dict[str, float]:
        """Numbers to log, the same names for every turn: the parts, counts, and 0 or 1 for what is a rate over turns.

        Example:
            >>> figures = TurnReward(penalty=-2.0, fault="no JSON").figures()
            >>> figures["reward"], figures["malformed"], figures["empty_chain"]
            (-2.0, 1.0, 0.0)
        """
        parts = {name: getattr(self, name) for name in ("final", "sub_questions", "efficiency", "own", "penalty", "matched")}
        counts = {verdict: float(self.verdicts.count(verdict)) for verdict in get_args(Verdict)}
        return {
            "reward": self.total,
            **parts,
            "malformed": float(bool(self.fault)),
            "empty_chain": float(not self.fault and self.n == 0),
            "n": float(self.n),
            "retrievals": float(self.retrievals),
            **counts,
        }


def fault_of(plan: str, actions: Collection[str], max_sub_questions: int = 6) -> str:
    """What keeps a plan from being exactly what the prompt asks for; "" where nothing does.

    The whole text, less a thought in front, must be one JSON object of the schema and no other fields, with known actions and
    sub-questions that say something, each once, and no more of them than asked for. Nothing is mended.

    Example:
        >>> fault_of('{"optimized_question": "Who?", "chain": [], "final_answer": ""}', ["docs"])
        ''
        >>> fault_of('Sure! {"optimized_question": "Who?", "chain": [], "final_answer": ""}', ["docs"])
        'no JSON'
        >>> fault_of('{"optimized_question": "Who?", "chain": []}', ["docs"])
        'the plan has no final_answer'
    """
    try:
        data = json.loads(without_thought(plan).strip(), object_pairs_hook=_each_once)
    except _SaidTwiceError as error:
        return str(error)
    except (ValueError, RecursionError):
        return "no JSON"
    if fault := _unlike(data, CHAIN_SCHEMA, "the plan"):
        return fault
    if not data["optimized_question"].strip():
        return "optimized_question is empty"
    steps = data["chain"]
    if len(steps) > max_sub_questions:
        return f"{len(steps)} sub-questions, more than {max_sub_questions}"
    if unknown := [step["action"] for step in steps if step["action"] not in actions]:
        return f"no action is called {unknown[0][:40]!r}"
    subs = [step["sub"].strip().casefold() for step in steps]
    if not all(subs):
        return "a sub-question is empty"
    return "a sub-question is repeated" if len(set(subs)) < len(subs) else ""


async def turn_reward(
    plan: str, output: ConvCoAOutput, question: str, references: Sequence[str], settings: RewardSettings | None = None
) -> TurnReward:
    """The reward of a plan that is of the right form and was played; judge and further reward are awaited where async.

    Args:
        plan: As the model wrote it.
        output: What the graph gave for the turn.
        question: The user's question.
        references: The answers that count as right.
        settings: The paper's when None.

    Raises:
        InputError: No reference is known, or a judge or a further reward gives no finite number.
    """
    settings = settings or RewardSettings()
    matched = await answer_matches(output["answer"], question, references, settings, output)
    own = 0.0
    if settings.own is not None:
        own = await _number(settings.own(plan, output, references), "the further reward")
    return reward_of(plan, output, matched, settings, own=own)


async def answer_matches(
    answer: str, question: str, references: Sequence[str], settings: RewardSettings, output: ConvCoAOutput | None = None
) -> float:
    """How well an answer matches by what the settings say, in [0, 1]; a judge sees it as it is.

    Of the answer of a turn, whose output is given, that counts which it claims, and what stands in its evidence.

    Raises:
        InputError: No reference is known, or a judge gives no finite number.
    """
    if not any(reference.strip() for reference in references):
        raise InputError(f"No answer to {question[:80]!r} is known, so that R_final means nothing: leave the question out.")
    if callable(settings.match):
        return await _number(settings.match(question, answer, references), "the judge")
    told = answer if output is None or answer.startswith(NOTHING) else _told(answer, output)
    return match_of(told, references, settings.match, settings.least_f1)


def _told(answer: str, output: ConvCoAOutput) -> str:
    """An answer without the sub-questions that it quotes, whole or cut short, and without sentences that nothing bears out.

    A sentence that claims nothing is not verified, so that a plan could list there what it does not know; but names and titles
    look so too ("The Who", "Who's Afraid of Virginia Woolf?").
    """
    answer = " ".join(answer.split())
    known = [citation["quote"] for citation in output["citations"]]
    for item in output["chain"]:
        if item["status"] in SOLVED:
            known.append(item["answer"])
        words = item["sub_question"].split()
        quoted = [" ".join(words), *(" ".join(words[:n]) + "…" for n in range(len(words) - 1, 0, -1))]
        for mark in ('"', "“"):
            answer = next((answer.replace(mark + one, mark) for one in quoted if mark + one in answer), answer)
    borne = [" ".join(without_marks(text).casefold().split()) for text in known]
    plain = [(statement.claim, without_marks(statement.text).strip()) for statement in statements(answer)]
    return " ".join(claim or text for claim, text in plain if claim or any(text.casefold() in one for one in borne))


def match_of(answer: str, references: Sequence[str], match: Match = "cover_em", least_f1: float = 0.5) -> float:
    """1 where an answer matches a reference, else 0; a plain refusal matches nothing.

    Example:
        >>> answer = "Ada Lovelace wrote it [1]."
        >>> match_of(answer, ["Ada Lovelace"]), match_of(answer, ["Ada Lovelace"], "em")
        (1.0, 0.0)
    """
    if answer.startswith(NOTHING):
        return 0.0
    found = match_answer(answer, references).get(match, 0.0)
    return float(found >= least_f1) if match == "f1" else found


def reward_of(
    plan: str, output: ConvCoAOutput, matched: float, settings: RewardSettings | None = None, *, own: float = 0.0
) -> TurnReward:
    """The formula: the reward of a plan that was played, of the turn's output and how well its answer matches.

    Example:
        >>> plan = '{"optimized_question": "Who?", "chain": [{"sub": "Who?"}], "final_answer": ""}'
        >>> item = {"guess_answer": "Ada.", "status": "kept"}
        >>> reward_of(plan, {"chain": [item], "usage": {"retrievals": 1}}, 1.0).total
        1.45
    """
    settings = settings or RewardSettings()
    verdicts = tuple(verdict_of(item) for item in output["chain"])
    each = {"kept": settings.kept, "hallucinated": settings.hallucinated}
    retrievals = output["usage"]["retrievals"]
    return TurnReward(
        final=settings.final * matched,
        sub_questions=sum(each.get(verdict, 0.0) for verdict in verdicts) / max(len(verdicts), 1),
        efficiency=-settings.retrieval * retrievals,
        own=own,
        matched=matched,
        n=len(json.loads(without_thought(plan))["chain"]),
        verdicts=verdicts,
        retrievals=retrievals,
    )


def malformed_reward(fault: str, settings: RewardSettings | None = None) -> TurnReward:
    """The reward of a plan that is not played, for what `fault_of` found."""
    return TurnReward(penalty=(settings or RewardSettings()).malformed, fault=fault)


def verdict_of(item: ChainItem | Mapping[str, Any]) -> Verdict:
    """What became of the guess of one item of a chain; see this module's beginning for what the paper leaves open.

    Example:
        >>> verdict_of({"guess_answer": "In 1982.", "status": "unsupported"})
        'hallucinated'
        >>> verdict_of({"guess_answer": "", "status": "unsupported"})
        'declined'
    """
    status = item["status"]
    if status in ("recalled", "failed"):
        return "recalled" if status == "recalled" else "failed"
    if not item["guess_answer"].strip():
        return "declined"
    if status in ("kept", "confirmed"):
        return "kept"
    return "hallucinated" if status == "unsupported" else "corrected"


def mean_figures(rewards: Sequence[TurnReward]) -> dict[str, float]:
    """The mean of each figure over turns; nothing of no turn.

    `declined_rate` and its like are shares of all guesses that were or could have been made, not of turns.

    Example:
        >>> figures = mean_figures([TurnReward(n=1, verdicts=("kept",)), TurnReward(n=2, verdicts=("declined",) * 2)])
        >>> figures["n"], round(figures["declined_rate"], 2)
        (1.5, 0.67)
    """
    if not rewards:
        return {}
    rows = [reward.figures() for reward in rewards]
    means = {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}
    verdicts = [verdict for reward in rewards for verdict in reward.verdicts]
    rates = {f"{verdict}_rate": verdicts.count(verdict) / max(len(verdicts), 1) for verdict in get_args(Verdict)}
    return means | rates


async def _number(value: float | bool | Awaitable[float | bool], who: str) -> float:
    found = await value if inspect.isawaitable(value) else value
    if isinstance(found, (int, float)) and math.isfinite(found):
        return float(found)
    raise InputError(f"{who} must return a finite number, not {found!r}.")


class _SaidTwiceError(ValueError):
    """An object that names a field twice, of which readers take one or the other."""


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _SaidTwiceError("a field stands there twice")
    return found


def _unlike(value: Any, schema: Mapping[str, Any], what: str) -> str:
    """Where a value departs from a schema of objects, lists, texts and flags; "" nowhere."""
    if type(value) is not _TYPES[schema["type"]]:
        return f"{what} is no {schema['type']}"
    if schema["type"] == "array":
        return next((fault for entry in value if (fault := _unlike(entry, schema["items"], "a step"))), "")
    if schema["type"] == "object":
        wanted = schema["properties"]
        if missing := [name for name in wanted if name not in value]:
            return f"{what} has no {missing[0]}"
        if more := [name for name in value if name not in wanted]:
            return f"{what} has a field {more[0][:40]!r} that is not asked for"
        return next((fault for name in wanted if (fault := _unlike(value[name], wanted[name], name))), "")
    return ""
