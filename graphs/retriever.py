"""The conversational retriever alone for LangGraph Studio: a chat in, the passages for its last message out."""

import os

from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

from langgraph_convcoa.cli.documents import documents_of, open_retriever
from langgraph_convcoa.cli.options import named_index


class RetrieverState(MessagesState):
    """A chat, and the passages found for its last message."""

    documents: list[Document]


docs = os.environ.get("CONVCOA_DOCS")
retriever = open_retriever(documents_of(docs, named_index(docs, None)) or "demo").history_aware()


async def retrieve(state: RetrieverState) -> dict[str, list[Document]]:
    """Search with the state of the conversation."""
    *history, question = state["messages"] or [HumanMessage("")]
    return {"documents": await retriever.ainvoke({"input": question.text, "chat_history": history})}


graph = StateGraph(RetrieverState).add_node("retrieve", retrieve).add_edge(START, "retrieve").compile()
