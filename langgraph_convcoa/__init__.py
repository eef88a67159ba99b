"""Conversational Chain-of-Action for LangGraph: verified, cited answers over documents, with a sparse Hopfield retriever.

The names below load on first use, so that importing the package loads neither torch nor a model.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langgraph_convcoa.actions.base import ActionRequest
    from langgraph_convcoa.actions.knowledge import KnowledgeRetrieval
    from langgraph_convcoa.actions.overview.action import Overview
    from langgraph_convcoa.actions.tables.action import DataAnalysis
    from langgraph_convcoa.actions.tool import ToolAction
    from langgraph_convcoa.actions.web.action import WebQuerying
    from langgraph_convcoa.chain import ActionChain, ActionNode
    from langgraph_convcoa.context import ConvCoAContext
    from langgraph_convcoa.graph import build_graph
    from langgraph_convcoa.memory.knowledge_set import ContextualKnowledgeSet
    from langgraph_convcoa.reasoning.chat_model import ChatModelReasoner
    from langgraph_convcoa.reasoning.extractive.reasoner import ExtractiveReasoner
    from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
    from langgraph_convcoa.verification.faith_score import faith_score
    from langgraph_convcoa.verification.mrfs import conv_mrfs

_HOMES = {
    "ActionChain": "chain",
    "ActionNode": "chain",
    "ActionRequest": "actions.base",
    "ChatModelReasoner": "reasoning.chat_model",
    "ContextualKnowledgeSet": "memory.knowledge_set",
    "ConvCoAContext": "context",
    "DataAnalysis": "actions.tables.action",
    "ExtractiveReasoner": "reasoning.extractive.reasoner",
    "HopfieldRetriever": "retrieval.retriever",
    "KnowledgeRetrieval": "actions.knowledge",
    "Overview": "actions.overview.action",
    "ToolAction": "actions.tool",
    "WebQuerying": "actions.web.action",
    "build_graph": "graph",
    "conv_mrfs": "verification.mrfs",
    "faith_score": "verification.faith_score",
}

__all__ = [
    "ActionChain",
    "ActionNode",
    "ActionRequest",
    "ChatModelReasoner",
    "ContextualKnowledgeSet",
    "ConvCoAContext",
    "DataAnalysis",
    "ExtractiveReasoner",
    "HopfieldRetriever",
    "KnowledgeRetrieval",
    "Overview",
    "ToolAction",
    "WebQuerying",
    "build_graph",
    "conv_mrfs",
    "faith_score",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
