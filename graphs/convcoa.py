"""The conversation graph for LangGraph Studio.

CONVCOA_DOCS is a file or folder (the demonstration's documents without it), CONVCOA_MODEL a chat model and CONVCOA_BASE_URL
its server; without a model, answers are extracted from the documents.
"""

import os

from langgraph_convcoa import Overview, build_graph
from langgraph_convcoa.cli.documents import open_retriever

retriever = open_retriever(os.environ.get("CONVCOA_DOCS") or "demo")
graph = build_graph(
    model=os.environ.get("CONVCOA_MODEL") or None,
    base_url=os.environ.get("CONVCOA_BASE_URL") or None,
    retriever=retriever,
    actions=[Overview(retriever)],
).compile()
