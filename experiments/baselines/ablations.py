"""Ablations of our method: the graph without one part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from langchain_core.runnables import RunnableConfig, RunnableLambda

from langgraph_convcoa.chain import ChainItem
from langgraph_convcoa.evaluation.methods.ours import make_ours
from langgraph_convcoa.evaluation.methods.prompting import Answerer, Kit, conversation
from langgraph_convcoa.evaluation.methods.registry import Method
from langgraph_convcoa.evaluation.records import Outcome, Turn
from langgraph_convcoa.reasoning.base import Corrected, Correction, CorrectRequest, Unsolved
from langgraph_convcoa.reasoning.chat_model import ChatModelReasoner

_UNCHECKED = "kept unchecked"


class _PartialReasoner(ChatModelReasoner):
    """Decides some corrections without the model, and asks it for the rest; for asynchronous turns only."""

    async def acorrect(self, request: CorrectRequest, config: RunnableConfig | None = None) -> Corrected:
        settled = {item.index: correction for item in request.items if (correction := self._settled(item)) is not None}
        rest = replace(request, items=[item for item in request.items if item.index not in settled])
        if request.draft and not rest.items:
            return Corrected([*settled.values()])
        corrected = await super().acorrect(rest, config)
        return replace(corrected, corrections=[*settled.values(), *corrected.corrections])

    def _settled(self, item: Unsolved) -> Correction | None:
        """The correction that needs no model, or None to ask the model."""
        raise NotImplementedError


class UncheckedReasoner(_PartialReasoner):
    """Keeps every guess as it is, and answers only the sub-questions without a guess."""

    def _settled(self, item: Unsolved) -> Correction | None:
        return Correction(item.index, item.guess_answer, _UNCHECKED) if item.guess_answer else None


class UnfilledReasoner(_PartialReasoner):
    """Leaves sub-questions without a guess unanswered, and hides their evidence when the answer is written."""

    async def acorrect(self, request: CorrectRequest, config: RunnableConfig | None = None) -> Corrected:
        unread = {id_ for item in request.chain if not item["guess_answer"] for id_ in item["evidence"]}
        read = {id_ for item in request.chain if item["guess_answer"] for id_ in item["evidence"]}
        shown = [
            document.model_copy(update={"page_content": ""}) if document.id in unread - read else document
            for document in request.evidence
        ]
        return await super().acorrect(replace(request, evidence=shown), config)

    def _settled(self, item: Unsolved) -> Correction | None:
        if item.guess_answer:
            return None
        return Correction(item.index, "", "the missing guess is not filled", supported=False)


def without_verification(kit: Kit, name: str) -> Answerer:
    """Our method with every guess kept unchecked (Pan et al. 2024a, table 2). Missing guesses are filled. 1 or 2 calls."""
    settings = {"look_first": False, "threshold": 0.0, "allow_draft_answer": False, "max_corrections": 1}
    method = make_ours(kit, name, settings=settings, reasoner=lambda kit: UncheckedReasoner(kit.chat_model()))

    async def run(turn: Turn, config: RunnableConfig) -> Outcome:
        outcome = await method.ainvoke(turn, config)
        # The graph counts every answer of a reasoner as a correction, even an unchanged guess.
        chain: list[ChainItem] = [
            {**item, "status": "kept"} if item["reason"] == _UNCHECKED else item for item in outcome.chain
        ]
        return replace(outcome, chain=tuple(chain))

    return RunnableLambda(run, name=name)


def without_knowledge_set(kit: Kit, name: str) -> Answerer:
    """Our method, but each question has its own thread, with the history as text in front of it. 1 or 2 calls."""
    settings = {"history_budget_tokens": 0, "recall_answers": False, "evidence_memory": 0, "share_knowledge": False}
    method = make_ours(kit, name, settings=settings)

    async def run(turn: Turn, config: RunnableConfig) -> Outcome:
        question = f"{conversation(turn, kit.settings.history_budget_tokens)}{turn.question}"
        return await method.ainvoke(Turn(turn.id, turn.id, question), config)

    return RunnableLambda(run, name=name)


def _ablation(description: str, settings: Mapping[str, Any], **more: Any) -> Method:
    return Method(description, partial(make_ours, settings=settings, **more), remembers=True)


ABLATIONS: Mapping[str, Method] = MappingProxyType(
    {
        # No alignment detection (Pan et al. 2024b, table 4): every guess is replaced by a new answer; 2 calls.
        "ours-without-alignment": _ablation(
            "ours, every guess answered again from the evidence",
            {"look_first": False, "threshold": 1.0, "max_corrections": 1},
        ),
        "ours-without-verification": Method("ours, every guess kept unchecked", without_verification, remembers=True),
        # No contextual knowledge set: earlier rounds are only text in front of the question; 1 or 2 calls.
        "ours-without-cks": Method("ours without a knowledge set, the history as plain text", without_knowledge_set),
        "ours-without-look": _ablation(
            "ours in the papers' form, which guesses before it looks anything up; 1 or 2 calls", {"look_first": False}
        ),
        # No imputation (Pan et al. 2024a, table 2): missing guesses stay unanswered, their evidence unread; 1 or 2 calls.
        "ours-without-filling": _ablation(
            "ours, missing guesses stay unanswered",
            {"look_first": False, "max_corrections": 1},
            reasoner=lambda kit: UnfilledReasoner(kit.chat_model()),
        ),
        "ours-without-draft": _ablation("ours, the answer always written from the chain", {"allow_draft_answer": False}),
    }
)
"""Ablations by name."""
