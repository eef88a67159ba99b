"""The environment of a planner: a sampled plan is played over the real graph, and the turn that it led to is rewarded.

Pan et al. 2024b, appendix I.2 and I.3.

R = R_final + (1 / n) sum R_sub[i] + R_efficiency for n sub-questions. R_final: 1 for a final answer that matches. R_sub: 0.5
for a guess that the evidence supports, -1 for an unsupported guess that is not corrected. R_efficiency: -0.05 per retrieval.

Cases that the paper leaves open:

- **Declined.** A sub-question without a guess earns 0.
- **Corrected.** A guess that was replaced earns 0, even if the new answer is only the nearest fact (`partial`).
- **Recalled, failed.** A sub-question that the knowledge set answered, or whose look-up failed, earns 0.
- **No sub-question.** An empty chain is one look-up of the question. If the plan has an answer, the answer is judged as a
  guess (n = 1). If not, the mean of R_sub is 0.
- **Malformed.** A plan that is not exactly the requested JSON is not played, and earns less than any plan that is played. The
  graph reads replies tolerantly: if broken JSON passed for an empty chain, a model would learn to write it.
- **No claim.** A refusal matches nothing, whatever it quotes. A sentence without a claim ("The documents do not say whether it
  was 1981 or 1982") counts only if it is in the evidence: otherwise a plan could list all possible answers.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig

from langgraph_convcoa.actions.knowledge import Retriever
from langgraph_convcoa.actions.runner import as_actions
from langgraph_convcoa.chain import SOLVED, ActionChain, ChainItem
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.errors import InputError, one_of
from langgraph_convcoa.graph import build_graph
from langgraph_convcoa.reasoning.base import Corrected, CorrectRequest, History, PlanRequest, Reasoner, RepairRequest
from langgraph_convcoa.reasoning.chat_model import ChatModelReasoner, plan_messages, read_plan
from langgraph_convcoa.reasoning.extractive.coverage import NOTHING
from langgraph_convcoa.reasoning.extractive.reasoner import ExtractiveReasoner
from langgraph_convcoa.reasoning.parsing import ANSWER_SCHEMA, CHAIN_SCHEMA, without_thought
from langgraph_convcoa.state import ConvCoAOutput
from langgraph_convcoa.text.citation_marks import without_marks
from langgraph_convcoa.text.matching import match_answer
from langgraph_convcoa.verification.sentences import statements

Match = Literal["em", "cover_em", "f1"]
Verdict = Literal["kept", "hallucinated", "corrected", "declined", "recalled", "failed"]
"""The verdict on the guess of a sub-question."""
Own = Callable[[str, ConvCoAOutput, Sequence[str]], float | Awaitable[float]]
"""The user's own reward: (plan as written, output of the turn, references) -> number. The function may be async."""
_LEAST_F1 = 0.5
_VERDICTS: Mapping[str, Verdict]
_VERDICTS = {"kept": "kept", "confirmed": "kept", "unsupported": "hallucinated", "recalled": "recalled", "failed": "failed"}
_TYPES: Mapping[str, Any] = {"object": dict, "array": list, "string": str, "boolean": bool}
_log = logging.getLogger(__name__)
_PLAN = "convcoa_played_plan"
_LOOKED_AT = 50
_AT_ONCE = 8
_NO_PLAN = '{"optimized_question": "", "chain": [], "final_answer": ""}'
PAPER_FORM = {"look_first": False}  # Settings of the papers' form: the planner guesses before anything is looked up.


class PlayedPlan(Reasoner):
    """A reasoner that takes its plan from the config of an asynchronous run. A frozen reasoner answers all other calls."""

    def __init__(self, frozen: Reasoner) -> None:
        self.frozen = frozen

    async def aplan(self, request: PlanRequest, config: RunnableConfig | None = None) -> ActionChain:
        text = (config or {}).get("configurable", {}).get(_PLAN)
        if text is None:
            raise _AskedError(plan_messages(request))
        return read_plan(text, request) or ActionChain.single(request.question, next(iter(request.actions)))

    async def acorrect(self, request: CorrectRequest, config: RunnableConfig | None = None) -> Corrected:
        return await self.frozen.acorrect(request, config)

    async def arepair(self, request: RepairRequest, config: RunnableConfig | None = None) -> dict[int, str]:
        return await self.frozen.arepair(request, config)


class _AskedError(Exception):
    """The graph asks for a plan, and there is none to play."""

    def __init__(self, messages: Sequence[BaseMessage]) -> None:
        super().__init__("a plan is asked for")
        self.messages = messages


class Environment:
    """Plays and rewards plans over the graph of `build_graph`, in which only the planner is replaced.

    Every turn begins with the earlier turns of the data, so it does not depend on other plans. `reasoner`, a reasoner or a
    chat model, corrects answers after the plan; if it is None, answers are extracted. `context` has the settings of the turns;
    if it is None, they are those of `PAPER_FORM`.

    Raises InputError as `build_graph`, and if a malformed plan could earn as much as a played plan.
    """

    def __init__(
        self,
        retriever: Retriever,
        *,
        reasoner: Reasoner | BaseChatModel | None = None,
        context: dict[str, Any] | None = None,
        reward: RewardSettings | None = None,
    ) -> None:
        [action] = as_actions(retriever, None)
        if isinstance(reasoner, BaseChatModel):
            reasoner = ChatModelReasoner(reasoner)
        # Turns must not end with a question to the user, since nobody would answer.
        settings: dict[str, Any] = {**(PAPER_FORM if context is None else context), "ask_back": False}
        played = PlayedPlan(reasoner or ExtractiveReasoner(getattr(action, "encoder", None)))
        self._graph = build_graph(actions=[action], reasoner=played, context=settings).compile()
        self.actions = [action.name]
        # Only the fields of `ConvCoAContext` are checked: the settings may also hold settings of other actions.
        own = {name: value for name, value in settings.items() if name in ConvCoAContext.model_fields}
        self.most = ConvCoAContext.model_validate(own).max_sub_questions
        self.reward_settings = reward or RewardSettings()
        self.reward_settings.check(self.most)

    async def prompt(self, question: str, history: History = ()) -> list[dict[str, str]]:
        """The messages with which the graph asks a model for the plan of a turn."""
        try:
            await self._graph.ainvoke({"messages": _messages(question, history)})
        except _AskedError as asked:
            return [{"role": "user", "content": message.text} for message in asked.messages]
        raise InputError(f"No plan is asked for {question[:80]!r}: leave the question out.")

    async def play(self, plan: str, question: str, history: History = ()) -> ConvCoAOutput:
        """The output of a turn with this plan. The plan is read as tolerantly as in a graph. `usage` leaves out its call."""
        config: RunnableConfig = {"configurable": {_PLAN: plan}}
        output: ConvCoAOutput = await self._graph.ainvoke({"messages": _messages(question, history)}, config)  # type: ignore[assignment]
        return output

    def fault(self, plan: str) -> str:
        """What is wrong with the form of a plan; "" if nothing is."""
        return fault_of(plan, self.actions, self.most)

    async def reward(self, plan: str, turn: Query) -> TurnReward:
        """The reward of a plan for a turn. A malformed plan is not played. Raises InputError as `turn_reward`."""
        if fault := self.fault(plan):
            return TurnReward(penalty=self.reward_settings.malformed, fault=fault)
        output = await self.play(plan, turn.question, turn.history)
        return await turn_reward(plan, output, turn.question, turn.references, self.reward_settings)

    async def rewards(self, plans: Sequence[str], turns: Sequence[Query]) -> list[TurnReward | None]:
        """The reward of each plan for the turn at the same place. If a turn has two equal plans, one of them is played.

        The reward is None if the turn failed; a warning says why. TRL leaves such a plan out.
        """
        slots = asyncio.Semaphore(_AT_ONCE)

        async def one(plan: str, turn: Query) -> TurnReward | None:
            async with slots:
                try:
                    return await self.reward(plan, turn)
                except Exception as error:  # noqa: BLE001 - also what a user's function raises
                    _log.warning("a plan for %r has no reward: %s: %s", turn.id, type(error).__name__, str(error)[:200])
                    return None

        played: dict[tuple[str, str], asyncio.Task[TurnReward | None]] = {}
        for plan, turn in zip(plans, turns, strict=True):
            # The id is not enough as a key: turns of two data sets may have the same id.
            if (plan, repr(turn)) not in played:
                played[plan, repr(turn)] = asyncio.ensure_future(one(plan, turn))
        return [await played[plan, repr(turn)] for plan, turn in zip(plans, turns, strict=True)]

    async def check(self, turns: Sequence[Query]) -> None:
        """Raise InputError if the documents contain none of the answers to the first questions."""
        looked = [turn for turn in turns if turn.references][:_LOOKED_AT]
        for turn in looked:
            output = await self.play(_NO_PLAN, turn.question, turn.history)
            texts = [output["answer"], *(citation["quote"] for citation in output["citations"])]
            if any(match_answer(text, turn.references).get("cover_em") for text in texts):
                return
            if any(identity in turn.gold for item in output["chain"] for identity in item["evidence"]):
                return
        raise InputError(f"The documents hold none of the answers to {len(looked)} questions: name the documents of the data.")


def playable(queries: Sequence[Query]) -> list[Query]:
    """The turns with a known answer. Raises InputError if there are none."""
    found = [query for query in queries if any(reference.strip() for reference in query.references)]
    if not found:
        raise InputError("The data hold no question with an answer, so no final answer can earn a reward: name other data.")
    if left_out := len(queries) - len(found):
        _log.info("%d questions without a known answer are left out", left_out)
    return found


def _messages(question: str, history: History) -> list[AnyMessage]:
    earlier = [message for asked, said in history for message in (HumanMessage(asked), AIMessage(said))]
    return [*earlier, HumanMessage(question)]


@dataclass(frozen=True)
class RewardSettings:
    """The weights of the reward, with the paper's values, and what counts as a match.

    Raises InputError if a weight is not finite, `match` is unknown, or a malformed plan could earn as much as a played plan.
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
        """Raise InputError if a malformed plan could earn as much as a played plan with this number of sub-questions.

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
    n: int = 0  # Number of sub-questions of the plan.
    verdicts: tuple[Verdict, ...] = ()  # The verdict on each guess; with an empty chain, on the plan's answer.
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

    The whole text after a thought must be one JSON object with exactly the fields of a schema, known actions, and different
    sub-questions, at most `max_sub_questions`. Nothing is repaired.
    """
    try:
        data = json.loads(without_thought(plan).strip(), object_pairs_hook=_each_once)
    except (ValueError, RecursionError):
        return "no JSON"
    if (fault := _unlike(data, CHAIN_SCHEMA, "the plan")) and _unlike(data, ANSWER_SCHEMA, "the plan"):
        return fault
    if not data["optimized_question"].strip():
        return "optimized_question is empty"
    if "chain" not in data and "final_answer" not in data:
        return "the plan has neither chain nor final_answer"
    steps = data.get("chain", [])
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
    """The reward of a well-formed plan, from the output of its turn.

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
    """How well an answer matches, in [0, 1]; 0 for a refusal. Raises InputError if no reference is known.

    If `output`, the turn's output, is given, sentences that claim nothing count only if they are in the evidence.
    """
    if not any(reference.strip() for reference in references):
        raise InputError(f"No answer to {question[:80]!r} is known, so that R_final means nothing: leave the question out.")
    if answer.startswith(NOTHING):
        return 0.0
    found = match_answer(answer if output is None else _told(answer, output), references).get(settings.match, 0.0)
    return float(found >= _LEAST_F1) if settings.match == "f1" else found


def _told(answer: str, output: ConvCoAOutput) -> str:
    """An answer without the sub-questions that it quotes, and without claimless sentences that are not in the evidence."""
    # A sentence without a claim is not verified, so a plan could list guesses there. Names and titles can look like such
    # sentences ("The Who", "Who's Afraid of Virginia Woolf?"): they count if they are in the evidence.
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
    """Compute the reward of a plan from the turn's output and how well its answer matches."""
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
        n=len(json.loads(without_thought(plan)).get("chain", [])),
        verdicts=verdicts,
        retrievals=retrievals,
    )


def verdict_of(item: ChainItem | Mapping[str, Any]) -> Verdict:
    """The verdict on the guess of one item of a chain (see the beginning of this module)."""
    verdict = _VERDICTS.get(item["status"], "corrected")
    return verdict if verdict in ("recalled", "failed") or item["guess_answer"].strip() else "declined"


def mean_figures(rewards: Sequence[TurnReward]) -> dict[str, float]:
    """The mean of each figure over turns; empty for no turns. Rates of verdicts are shares of all sub-questions."""
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
        if missing := [name for name in schema["required"] if name not in value]:
            return f"{what} has no {missing[0]}"
        if more := [name for name in value if name not in wanted]:
            return f"{what} has a field {more[0][:40]!r} that is not asked for"
        return next((fault for name in value if (fault := _unlike(value[name], wanted[name], name))), "")
    return ""
