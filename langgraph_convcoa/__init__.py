"""Conversational Chain-of-Action for LangGraph: verified, cited answers over documents, with a sparse Hopfield retriever.

The names below load on first use, so that importing the package loads neither torch nor a model.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langgraph_convcoa.actions.base import ActionRequest as ActionRequest
    from langgraph_convcoa.actions.knowledge import KnowledgeRetrieval as KnowledgeRetrieval
    from langgraph_convcoa.actions.overview import Overview as Overview
    from langgraph_convcoa.actions.tables.action import DataAnalysis as DataAnalysis
    from langgraph_convcoa.actions.tool import ToolAction as ToolAction
    from langgraph_convcoa.actions.web.action import WebQuerying as WebQuerying
    from langgraph_convcoa.agent import VerifiedAnswers as VerifiedAnswers
    from langgraph_convcoa.agent import convcoa_tool as convcoa_tool
    from langgraph_convcoa.chain import ActionChain as ActionChain
    from langgraph_convcoa.chain import ActionNode as ActionNode
    from langgraph_convcoa.context import ConvCoAContext as ConvCoAContext
    from langgraph_convcoa.graph import build_graph as build_graph
    from langgraph_convcoa.memory.knowledge_set import ContextualKnowledgeSet as ContextualKnowledgeSet
    from langgraph_convcoa.reasoning.chat_model import ChatModelReasoner as ChatModelReasoner
    from langgraph_convcoa.reasoning.extractive.reasoner import ExtractiveReasoner as ExtractiveReasoner
    from langgraph_convcoa.retrieval.retriever import HopfieldRetriever as HopfieldRetriever
    from langgraph_convcoa.verification.faith_score import conv_mrfs as conv_mrfs
    from langgraph_convcoa.verification.faith_score import faith_score as faith_score

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
    "Overview": "actions.overview",
    "ToolAction": "actions.tool",
    "VerifiedAnswers": "agent",
    "WebQuerying": "actions.web.action",
    "build_graph": "graph",
    "conv_mrfs": "verification.faith_score",
    "convcoa_tool": "agent",
    "faith_score": "verification.faith_score",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
