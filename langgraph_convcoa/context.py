"""Run-time settings of a turn, with the metadata that LangGraph Studio shows."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from langchain_core.runnables import RunnableConfig
from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from langgraph_convcoa.actions.base import BaseAction
from langgraph_convcoa.actions.knowledge import KnowledgeRetrievalSettings
from langgraph_convcoa.actions.tables.action import DataAnalysisSettings
from langgraph_convcoa.actions.web import WebQueryingSettings
from langgraph_convcoa.errors import InputError


def _setting(nodes: str, about: str, **options: Any) -> Any:
    """Make a field, None by default, that LangGraph Studio shows at the named nodes."""
    if "default_factory" not in options:
        options.setdefault("default", None)
    shown: dict[str, Any] = {"langgraph_nodes": nodes.split()}
    return Field(description=about, json_schema_extra=shown, **options)


def _of_action(name: str, settings: type[BaseModel]) -> Any:
    return _setting(name, f"Settings of the {name} action.", default_factory=settings)


class ConvCoAContext(BaseModel):
    """Settings of a run, given as `graph.invoke(..., context=ConvCoAContext(k=3))` or as a dict of the same fields.

    Example:
        >>> ConvCoAContext(k=3).max_sub_questions
        6
    """

    model_config = ConfigDict(extra="forbid")

    model: str | None = _setting(
        "plan correct", 'Chat model for this run, such as "openai:gpt-4.1-mini"; the graph\'s own when left empty.'
    )
    plan_model: str | None = _setting(
        "plan", "Chat model that plans, and answers where one call suffices; as `model` when left empty."
    )
    correct_model: str | None = _setting(
        "correct", "Chat model of the second call, which corrects, fills and writes the answer; as `model` when left empty."
    )
    repair_model: str | None = _setting(
        "repair", "Chat model that rewrites SQL and arguments that failed; as `model` when left empty."
    )
    k: int | None = _setting(
        "plan", "Passages retrieved for a sub-question. Left empty: 5 with a model, 10 without one to read them.", ge=1, le=100
    )
    threshold: float | None = _setting(
        "verify", "T: a sentence or a guess is kept above this probability. Left empty: the verifier's own.", ge=0, le=1
    )
    history_budget_tokens: int = _setting(
        "recall", "How many tokens of earlier rounds a prompt may hold.", default=1500, ge=0, le=100_000
    )
    memory_capacity: int = _setting(
        "recall",
        "Number of rounds that the history memory searches. If there are more, the least relevant and oldest are left out.",
        default=200,
        ge=1,
        le=10_000,
    )
    recall_answers: bool = _setting(
        "recall plan", "A sub-question that an earlier round answered is recalled and not looked up again.", default=True
    )
    recall_max_age: float | None = _setting(
        "recall plan", "Seconds after which an earlier answer is stale and looked up again. Left empty: never.", ge=0
    )
    evidence_memory: int = _setting(
        "verify remember",
        "Pieces of earlier evidence to keep. The best of them replace the weakest third of the new evidence. 0: none.",
        default=40,
        ge=0,
        le=1000,
    )
    share_knowledge: bool = _setting(
        "recall remember",
        "Share what is learnt among the threads of one user, in the store that the graph is compiled with.",
        default=False,
    )
    user_id: str | None = _setting(
        "recall remember", "Whose threads share knowledge; only where share_knowledge is on.", max_length=500
    )
    look_first: bool = _setting(
        "look plan",
        "Look the question up as it stands before it is planned: one model call where that suffices. Off: the planner guesses "
        "first, as in the papers.",
        default=True,
    )
    ask_back: bool = _setting(
        "plan",
        "Ask the user what a question means, if neither the conversation nor the evidence settles it; never twice in a row.",
        default=True,
    )
    max_sub_questions: int = _setting("plan", "Longest action chain.", default=6, ge=1, le=20)
    action_timeout: float = _setting("plan", "Seconds an action may take for one sub-question.", default=30.0, gt=0, le=3600)
    max_concurrency: int = _setting("plan", "Actions that may run at the same time in a turn.", default=8, ge=1, le=64)
    max_corrections: int = _setting(
        "verify correct",
        "1: what fails is looked up deeper once and corrected by the model. 0: the best evidence stands in.",
        default=1,
        ge=0,
        le=1,
    )
    allow_draft_answer: bool = _setting(
        "verify", "Take the planner's answer, without another call, when all of it is supported.", default=True
    )
    quote_without_model: bool = _setting(
        "plan correct",
        "If the model does not answer, answer with quotes as without a model, and say why. Off: the turn fails.",
        default=False,
    )
    approve: list[str] = _setting(
        "look plan approve",
        "Names of actions that a person approves, and of the nodes plan, correct and answer. Needs a checkpointer.",
        default_factory=list,
    )
    language: str = _setting(
        "plan correct",
        "Language of the answer, such as German; that of the question when left empty.",
        default="",
        max_length=50,
    )
    knowledge_retrieval: KnowledgeRetrievalSettings = _of_action("knowledge_retrieval", KnowledgeRetrievalSettings)
    web_querying: WebQueryingSettings = _of_action("web_querying", WebQueryingSettings)
    data_analysis: DataAnalysisSettings = _of_action("data_analysis", DataAnalysisSettings)

    def model_of(self, node: str) -> str | None:
        """The model that this run names for one node or for all nodes; None for the graph's own model.

        Example:
            >>> context = ConvCoAContext(model="openai:gpt-4.1", plan_model="openai:gpt-4.1-mini")
            >>> context.model_of("plan"), context.model_of("correct")
            ('openai:gpt-4.1-mini', 'openai:gpt-4.1')
        """
        return getattr(self, f"{node}_model", None) or self.model

    def of_action(self, name: str) -> dict[str, Any]:
        """Settings of one action, without those that are None; {} for an action without settings."""
        own = getattr(self, name, None) if name in type(self).model_fields else None
        return own.model_dump(exclude_none=True) if isinstance(own, BaseModel) else {}

    @model_validator(mode="before")
    @classmethod
    def _removed(cls, given: Any) -> Any:
        gone = sorted({"weights", "verify_items"} & set(given)) if isinstance(given, dict) else []
        if gone:
            raise ValueError(
                f"{' and '.join(gone)} are gone with the word score; choose what verifies by build_graph(verifier=...)"
            )
        return given


def context_of(actions: Iterable[BaseAction]) -> type[ConvCoAContext]:
    """`ConvCoAContext` with one more field, named like the action, for each other action that has a settings model.

    Raises:
        InputError: An action with a settings model has the name of another setting.
    """
    fields: dict[str, Any] = {}
    for action in actions:
        model = action.settings
        known = ConvCoAContext.model_fields.get(action.name)
        if not (isinstance(model, type) and issubclass(model, BaseModel)) or (known and known.annotation is model):
            continue
        if known and not (isinstance(known.annotation, type) and issubclass(known.annotation, BaseModel)):
            raise InputError(f"an action with settings cannot be called {action.name!r}: a setting of the turn has that name")
        fields[action.name] = (model, _of_action(action.name, model))
    return create_model("ConvCoAContext", __base__=ConvCoAContext, **fields) if fields else ConvCoAContext


def check_approve(names: Collection[str], actions: Collection[str], config: RunnableConfig | None = None) -> list[str]:
    """Check the names of the setting `approve`; returns each name once.

    Raises:
        InputError: A name is neither an action of the graph nor a node whose result can be approved, or the graph of a run
            (`config`) has no checkpointer.
    """
    known = ["plan", "correct", "answer", *actions]
    if unknown := [name for name in names if name not in known]:
        raise InputError(f"approve names {unknown[0]!r}: it takes {', '.join(known)}")
    # LangGraph always sets the key. If a later version renames it, the check is skipped.
    if names and config and config.get("configurable", {}).get("__pregel_checkpointer", True) is None:
        raise InputError("approve needs a checkpointer, so that the turn can wait: build_graph(...).compile(checkpointer=...)")
    return [name for name in known if name in names]
