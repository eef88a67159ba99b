"""What every method works with: the same model, the same retriever, the same limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from langchain_core.language_models import BaseChatModel
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable

from langgraph_convcoa.actions.base import Action
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.evaluation.runs.answered import Outcome, Turn

Method = Runnable[Turn, Outcome]
"""Answers a question. Whoever invokes it counts its calls, tokens and searches with callbacks in the config, so that a method
passes the config of its run on, which LangChain's runnables and graphs do by themselves, and counts nothing."""


@dataclass(frozen=True)
class Kit:
    """The means of a run, the same for all of its methods.

    Attributes:
        model: The language model.
        retriever: What is searched; None for a run without a corpus.
        k: Passages a search.
        max_steps: Most rounds of a method that goes on until it is done (ReAct, self-ask, search-in-the-chain).
        samples: Replies of self-consistency, and branches of tree of thoughts.
        settings: Of ours.
        examples: Questions with their answers, for few-shot prompts; of another part of the data than what is asked.
        actions: Further actions of ours beside the retriever, such as the web or tables.
    """

    model: BaseChatModel
    retriever: BaseRetriever | None = None
    k: int = 5
    max_steps: int = 6
    samples: int = 5
    settings: ConvCoAContext = field(default_factory=ConvCoAContext)
    examples: Sequence[tuple[str, str]] = ()
    actions: Sequence[Action] = ()

    def action_names(self) -> list[str]:
        """The names of all actions that ours can take; the retriever is one of them.

        Example:
            >>> from langchain_core.language_models import FakeListChatModel
            >>> Kit(FakeListChatModel(responses=[])).action_names()
            []
        """
        return [*(["knowledge_retrieval"] if self.retriever is not None else []), *(action.name for action in self.actions)]
