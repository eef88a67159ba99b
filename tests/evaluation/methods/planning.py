"""A model that plans what it is told to, and conversations with it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from langchain_core.runnables import Runnable

from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.evaluation.methods.prompting import Kit
from langgraph_convcoa.evaluation.methods.registry import METHODS, Method, make_method
from langgraph_convcoa.evaluation.records import Outcome, Turn
from tests.fakes import KeywordRetriever, ScriptedModel, corrections, node, plan

NETWORK = "When was the Hopfield network described?"
FACT = "John Hopfield described the Hopfield network in 1982."
SPARSEMAX = "When was sparsemax introduced?"
GUESSING = ConvCoAContext(look_first=False)
"""The papers' form, in which the plan has guesses."""


class Model:
    """A model that plans what it is told to, and keeps its prompts."""

    def __init__(self, *plans: str) -> None:
        self.plans = list(plans)
        self.fails = False
        self.model = ScriptedModel(by_prompt=self.reply)

    def reply(self, prompt: str) -> str:
        if self.fails:
            raise ConnectionError("gone")
        if "Answer a question from evidence that was looked up" in prompt:
            return corrections("Corrected from the evidence.", "And this one.", final="It was in 1982 [1].")
        if "Check sentences of an answer" in prompt:
            return corrections("Corrected from the evidence.")
        return self.plans.pop(0)

    @property
    def plan_prompts(self) -> list[str]:
        return [prompt for prompt in self.model.prompts if "action chain" in prompt]


def kept_plan() -> str:
    return plan(node(NETWORK, FACT), final=FACT, optimized=NETWORK)


def converse(
    method: Runnable[Turn, Outcome], questions: list[str], gold: str | None = None, conversation: str = "c"
) -> list[Outcome]:
    """A conversation with the method's own answers, without their citation marks, or with gold ones."""
    history: tuple[tuple[str, str], ...] = ()
    outcomes = []
    for number, question in enumerate(questions):
        outcomes.append(asyncio.run(method.ainvoke(Turn(f"{conversation}{number}", conversation, question, history))))
        history = (*history, (question, gold or outcomes[-1].answer.replace(" [1]", "")))
    return outcomes


STEPS = plan(node(NETWORK, "It was described by Kohonen in 1977."), node(SPARSEMAX), final="In 1977.", optimized="Both?")


def statuses(
    name: str, text: str = STEPS, *, methods: Mapping[str, Method] = METHODS, **settings: Any
) -> tuple[list[tuple[str, str]], ScriptedModel]:
    model = Model(text)
    kit = Kit(model.model, KeywordRetriever(), **{"settings": GUESSING, **settings})
    outcome = asyncio.run(make_method(name, kit, methods).ainvoke(Turn("q", "c", "Both?")))
    return [(item["status"], item["answer"]) for item in outcome.chain], model.model
