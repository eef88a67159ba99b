"""Run-time settings of a turn, with the metadata that LangGraph Studio shows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from langgraph_convcoa.actions.base import Action
from langgraph_convcoa.actions.knowledge import KnowledgeRetrievalSettings
from langgraph_convcoa.actions.tables.action import DataAnalysisSettings
from langgraph_convcoa.actions.web.settings import WebQueryingSettings
from langgraph_convcoa.errors import InputError


def _nodes(*names: str) -> dict[str, Any]:
    return {"langgraph_nodes": list(names)}


class ConvCoAContext(BaseModel):
    """Settings of a run, given as `graph.invoke(..., context=ConvCoAContext(k=3))` or as a dict of the same fields.

    Example:
        >>> ConvCoAContext(k=3).max_sub_questions
        6
    """

    model_config = ConfigDict(extra="forbid")

    model: str | None = Field(
        default=None,
        description='Chat model for this run, such as "openai:gpt-4.1-mini"; the graph\'s own when left empty.',
        json_schema_extra=_nodes("plan", "correct", "answer"),
    )
    k: int | None = Field(
        default=None,
        ge=1,
        le=100,
        description="Passages retrieved for a sub-question. Left empty: 5 with a model, 10 without one to read them.",
        json_schema_extra=_nodes("plan"),
    )
    threshold: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="A guess is kept above this faith score. Left empty: the calibrated threshold of the score in use.",
        json_schema_extra=_nodes("verify"),
    )
    weights: tuple[float, float, float] | None = Field(
        default=None,
        description="Weights of precision, recall and average word length; they sum to 1. Left empty: the calibrated ones.",
        json_schema_extra=_nodes("verify"),
    )
    verify_items: Literal["content", "tokens"] = Field(
        default="content",
        description="What the faith score counts: content words of sentences, or all tokens as in the paper (T = 0.75).",
        json_schema_extra=_nodes("verify"),
    )
    history_budget_tokens: int = Field(
        default=1500,
        ge=0,
        le=100_000,
        description="How many tokens of earlier rounds a prompt may hold.",
        json_schema_extra=_nodes("recall"),
    )
    memory_capacity: int = Field(
        default=200,
        ge=1,
        le=10_000,
        description="Rounds that the history memory keeps; beyond, the least relevant and oldest are not searched.",
        json_schema_extra=_nodes("recall"),
    )
    recall_answers: bool = Field(
        default=True,
        description="A sub-question that an earlier round answered is recalled and not looked up again.",
        json_schema_extra=_nodes("recall", "plan"),
    )
    recall_max_age: float | None = Field(
        default=None,
        ge=0,
        description="Seconds after which an earlier answer is stale and looked up again. Left empty: never.",
        json_schema_extra=_nodes("recall", "plan"),
    )
    evidence_memory: int = Field(
        default=40,
        ge=0,
        le=1000,
        description="Pieces of earlier evidence kept; the best take the place of the weakest fresh third. 0: none.",
        json_schema_extra=_nodes("verify", "remember"),
    )
    share_knowledge: bool = Field(
        default=False,
        description="Share what is learnt among the threads of one user, in the store that the graph is compiled with.",
        json_schema_extra=_nodes("recall", "remember"),
    )
    user_id: str | None = Field(
        default=None,
        max_length=500,
        description="Whose threads share knowledge; only where share_knowledge is on.",
        json_schema_extra=_nodes("recall", "remember"),
    )
    max_sub_questions: int = Field(
        default=6, ge=1, le=20, description="Longest action chain.", json_schema_extra=_nodes("plan")
    )
    action_timeout: float = Field(
        default=30.0,
        gt=0,
        le=3600,
        description="Seconds an action may take for one sub-question.",
        json_schema_extra=_nodes("plan"),
    )
    max_concurrency: int = Field(
        default=8,
        ge=1,
        le=64,
        description="Actions that may run at the same time in a turn.",
        json_schema_extra=_nodes("plan"),
    )
    max_corrections: int = Field(
        default=1,
        ge=0,
        le=1,
        description="1: what fails is looked up deeper once and corrected by the model. 0: the best evidence stands in.",
        json_schema_extra=_nodes("verify", "correct"),
    )
    allow_draft_answer: bool = Field(
        default=True,
        description="Take the planner's draft as the answer, without another call, when all of it is supported.",
        json_schema_extra=_nodes("answer"),
    )
    language: str = Field(
        default="",
        max_length=50,
        description="Language of the answer, such as German; that of the question when left empty.",
        json_schema_extra=_nodes("plan", "correct", "answer"),
    )
    knowledge_retrieval: KnowledgeRetrievalSettings = Field(
        default_factory=KnowledgeRetrievalSettings,
        description="Settings of the knowledge_retrieval action.",
        json_schema_extra=_nodes("knowledge_retrieval"),
    )
    web_querying: WebQueryingSettings = Field(
        default_factory=WebQueryingSettings,
        description="Settings of the web_querying action.",
        json_schema_extra=_nodes("web_querying"),
    )
    data_analysis: DataAnalysisSettings = Field(
        default_factory=DataAnalysisSettings,
        description="Settings of the data_analysis action.",
        json_schema_extra=_nodes("data_analysis"),
    )

    def of_action(self, name: str) -> dict[str, Any]:
        """The settings of one action that are set; nothing for an action that has none.

        Example:
            >>> ConvCoAContext(data_analysis={"max_rows": 3}).of_action("data_analysis")
            {'max_rows': 3}
        """
        own = getattr(self, name, None) if name in type(self).model_fields else None
        return own.model_dump(exclude_none=True) if isinstance(own, BaseModel) else {}

    @model_validator(mode="after")
    def _weights_sum_to_one(self) -> ConvCoAContext:
        if self.weights is not None and (min(self.weights) < 0 or abs(sum(self.weights) - 1) > 1e-6):
            raise ValueError("weights must be three numbers of at least 0 that sum to 1")
        return self


def context_of(actions: Iterable[Action]) -> type[ConvCoAContext]:
    """`ConvCoAContext` with a field, named like the action, for every further action that has a settings model.

    Raises:
        InputError: Such an action has the name of another setting.
    """
    fields: dict[str, Any] = {}
    for action in actions:
        model = getattr(action, "settings", None)
        known = ConvCoAContext.model_fields.get(action.name)
        if not (isinstance(model, type) and issubclass(model, BaseModel)) or (known and known.annotation is model):
            continue
        if known and not (isinstance(known.annotation, type) and issubclass(known.annotation, BaseModel)):
            raise InputError(f"an action with settings cannot be called {action.name!r}: a setting of the turn has that name")
        about = f"Settings of the {action.name} action."
        extra = _nodes(action.name)
        fields[action.name] = (model, Field(default_factory=model, description=about, json_schema_extra=extra))
    return create_model("ConvCoAContext", __base__=ConvCoAContext, **fields) if fields else ConvCoAContext
