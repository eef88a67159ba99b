"""The node `recall`: reads the question, loads the relevant history and clears the state of an abandoned turn."""

from __future__ import annotations

from langchain_core.runnables import RunnableConfig
from langgraph.types import Overwrite

from langgraph_convcoa.memory import sharing
from langgraph_convcoa.memory.asked import read_conversation
from langgraph_convcoa.memory.knowledge_set import ContextualKnowledgeSet, Round
from langgraph_convcoa.nodes.decisions import check_approve
from langgraph_convcoa.nodes.parts import GraphParts, TurnRuntime, Update
from langgraph_convcoa.state import ConvCoAState, empty_reply

_SHARED_ROUNDS = 50


def recall(parts: GraphParts, state: ConvCoAState, config: RunnableConfig, runtime: TurnRuntime) -> Update:
    """Read the question and clear what an earlier turn left; no model call."""
    settings = parts.settings(runtime)
    asked = read_conversation(state.get("question"), state.get("messages", []), state.get("asked_message_id"))
    knowledge = ContextualKnowledgeSet.load(state.get("knowledge_set"))
    knowledge.seed(asked.history)
    shared: list[Round] = []
    if settings.share_knowledge:
        store, user, thread = sharing.parts_of(runtime.store, settings.user_id, config)
        shared = sharing.shared_rounds(store, user, but_of=thread, limit=_SHARED_ROUNDS)
    view, history = parts.memory.recollect(
        knowledge.after(shared),
        asked.question,
        asked.history,
        budget_tokens=settings.history_budget_tokens,
        capacity=settings.memory_capacity,
    )
    return {
        "asked": asked.question,
        "asked_message_id": asked.message_id,
        # Kept in the state, because a turn is often resumed without the settings of its start.
        "approve": check_approve(settings.approve, parts.actions.actions, config),
        "history": history,
        "knowledge_view": view,
        "shared": shared,
        "recalled": [],
        "reused": 0,
        "messages": asked.removals,
        # Until the question is planned, it counts as dependent on the conversation.
        "plan": {"optimized_question": asked.question, "draft_answer": "", "self_contained": not history, "nodes": []},
        "findings": Overwrite([]),
        "items": [],
        "unsolved": [],
        "depth": 0,
        "repaired": [],
        "reply": empty_reply(),
        "origin": "",
    }
