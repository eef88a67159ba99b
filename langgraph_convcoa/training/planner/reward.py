"""The reward of a plan, from the turn that it led to (Pan et al. 2024b, appendix I.3).

R = R_final + (1 / n) sum R_sub[i] + R_efficiency for n sub-questions. R_final: 1 for a final answer that matches. R_sub: 0.5
for a guess that the evidence supports, -1 for an unsupported guess that is not corrected. R_efficiency: -0.05 a retrieval.

Cases that the paper leaves open:

- **Declined.** A sub-question without a guess earns 0.
- **Corrected.** A guess that another answer replaced earns 0, also if that is only the nearest fact (`partial`).
- **Recalled, failed.** A sub-question that the knowledge set answered, or whose look-up failed, earns 0.
- **No sub-question.** An empty chain is one look-up of the question. An answer that the plan gave at once is judged as its
  guess (n = 1); without an answer the mean is 0.
- **Malformed.** A plan that is not exactly the requested JSON is not played, and earns less than any plan that is played. The
  graph reads replies tolerantly: if broken JSON passed for an empty chain, a model would learn to write it.
- **No claim.** A refusal matches nothing, whatever it quotes. A sentence without a claim ("The documents do not say whether it
  was 1981 or 1982") counts only if it is in the evidence: otherwise a plan could list answers that it does not know.
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
Own = Callable[[str, ConvCoAOutput, Sequence[str]], float | Awaitable[float]]
"""(plan as written, output of the turn, references) -> another reward; plain or async."""

_LEAST_F1 = 0.5
_VERDICTS: Mapping[str, Verdict]
_VERDICTS = {"kept": "kept", "confirmed": "kept", "unsupported": "hallucinated", "recalled": "recalled", "failed": "failed"}
_TYPES: Mapping[str, Any] = {"object": dict, "array": list, "string": str, "boolean": bool}


@dataclass(frozen=True)
class RewardSettings:
    """The weights of the reward, with the paper's values, and what counts as a match.

    Raises InputError if a weight is not finite, `match` is unknown, or a malformed plan could earn as much as a played one.
    """

    final: float = 1.0  # R_final of an answer that matches.
    kept: float = 0.5  # R_sub of a guess that the evidence supports.
    hallucinated: float = -1.0  # R_sub of an unsupported guess that is not corrected.
    retrieval: float = 0.05  # Cost of a retrieval.
    malformed: float = -2.0  # The whole reward of a plan that is not of the requested form.
    match: Match = "cover_em"  # "em" (as in the paper), "cover_em" (for sentences) or "f1" (at least 0.5).
    own: Own | None = None  # A reward of your own, added to the reward of every played plan.

    def __post_init__(self) -> None:
        for name in ("final", "kept", "hallucinated", "retrieval", "malformed"):
            if not math.isfinite(getattr(self, name)):
                raise InputError(f"{name} must be a finite number, not {getattr(self, name)}.")
        one_of("match", self.match, get_args(Match))
        self.check()

    def check(self, sub_questions: int = 6) -> None:
        """Raise InputError if a malformed plan could earn as much as one with this number of sub-questions.

        A turn looks up its question once, and each sub-question at most three times: first, deeper, and with another input.
        """
        retrievals = 1 + 3 * sub_questions
        worst = min(self.final, 0) + min(self.kept, self.hallucinated, 0) - max(self.retrieval, 0) * retrievals
        if self.malformed >= worst:
            raise InputError(
                f"malformed must be below the worst reward of a plan that is played, {worst:g}, not {self.malformed:g}."
            )


@dataclass(frozen=True)
class TurnReward:
    """The reward of a turn, its parts, and the counts behind them."""

    final: float = 0.0  # R_final.
    sub_questions: float = 0.0  # The mean of R_sub.
    efficiency: float = 0.0  # R_efficiency.
    own: float = 0.0  # The user's own reward.
    penalty: float = 0.0  # The reward of a malformed plan, whose other parts are 0.
    fault: str = ""  # What is wrong with a malformed plan.
    matched: float = 0.0  # How well the final answer matches, in [0, 1].
    n: int = 0  # Sub-questions of the plan.
    verdicts: tuple[Verdict, ...] = ()  # On each guess; with an empty chain, on the answer given at once.
    retrievals: int = 0

    @property
    def total(self) -> float:
        """R, the sum of the parts."""
        return self.final + self.sub_questions + self.efficiency + self.own + self.penalty

    def figures(self) -> dict[str, float]:
        """Numbers to log: the parts, the counts, and 0 or 1 for rates."""
        names = ("final", "sub_questions", "efficiency", "own", "penalty", "matched", "n", "retrievals")
        rates = {"malformed": float(bool(self.fault)), "empty_chain": float(not self.fault and self.n == 0)}
        counts = {verdict: float(self.verdicts.count(verdict)) for verdict in get_args(Verdict)}
        return {"reward": self.total, **{name: float(getattr(self, name)) for name in names}, **rates, **counts}


def fault_of(plan: str, actions: Collection[str], max_sub_questions: int = 6) -> str:
    """What is wrong with the form of a plan; "" if it is exactly what the prompt asks for.

    The whole text after a thought must be one JSON object with exactly the fields of the schema, known actions, and different
    sub-questions, at most `max_sub_questions`. Nothing is repaired.
    """
    try:
        data = json.loads(without_thought(plan).strip(), object_pairs_hook=_each_once)
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
    """The reward of a plan of the right form that was played.

    Raises InputError if no reference is known, or the user's own reward is no finite number.
    """
    settings = settings or RewardSettings()
    matched = answer_matches(output["answer"], question, references, settings, output)
    own: Any = 0.0 if settings.own is None else settings.own(plan, output, references)
    own = await own if inspect.isawaitable(own) else own
    if not (isinstance(own, (int, float)) and math.isfinite(own)):
        raise InputError(f"the user's own reward must return a finite number, not {own!r}.")
    return reward_of(plan, output, matched, settings, own=own)


def answer_matches(
    answer: str, question: str, references: Sequence[str], settings: RewardSettings, output: ConvCoAOutput | None = None
) -> float:
    """How well an answer matches, in [0, 1]; 0 for a refusal. InputError if no reference is known.

    If `output`, the turn of the answer, is given, only claims and sentences of the evidence count.
    """
    if not any(reference.strip() for reference in references):
        raise InputError(f"No answer to {question[:80]!r} is known, so that R_final means nothing: leave the question out.")
    if answer.startswith(NOTHING):
        return 0.0
    found = match_answer(answer if output is None else _told(answer, output), references).get(settings.match, 0.0)
    return float(found >= _LEAST_F1) if settings.match == "f1" else found


def _told(answer: str, output: ConvCoAOutput) -> str:
    """An answer without the sub-questions that it quotes, and without claimless sentences that are not in the evidence.

    A sentence without a claim is not verified, so a plan could list guesses there. Names and titles can look
    like such sentences ("The Who", "Who's Afraid of Virginia Woolf?"): they count if they are in the evidence.
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


def reward_of(
    plan: str, output: ConvCoAOutput, matched: float, settings: RewardSettings | None = None, *, own: float = 0.0
) -> TurnReward:
    """The formula: the reward of a plan, from the turn's output and how well its answer matches."""
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


def verdict_of(item: ChainItem | Mapping[str, Any]) -> Verdict:
    """What became of the guess of one item of a chain (see the beginning of this module)."""
    verdict = _VERDICTS.get(item["status"], "corrected")
    return verdict if verdict in ("recalled", "failed") or item["guess_answer"].strip() else "declined"


def mean_figures(rewards: Sequence[TurnReward]) -> dict[str, float]:
    """The mean of each figure over turns; empty for no turns.

    `declined_rate` and the other rates of verdicts are shares of all sub-questions, not of turns.
    """
    if not rewards:
        return {}
    rows = [reward.figures() for reward in rewards]
    means = {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}
    verdicts = [verdict for reward in rewards for verdict in reward.verdicts]
    rates = {f"{verdict}_rate": verdicts.count(verdict) / max(len(verdicts), 1) for verdict in get_args(Verdict)}
    return means | rates


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a field is there twice")
    return found


def _unlike(value: Any, schema: Mapping[str, Any], what: str) -> str:
    """How a value differs from a schema of objects, lists, texts and flags; "" if it does not."""
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
