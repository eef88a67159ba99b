"""The conversation graph for LangGraph Studio.

CONVCOA_INDEX is an index or the address of an engine, or CONVCOA_DOCS a file or folder (the demonstration's documents without
either), CONVCOA_MODEL a chat model and CONVCOA_BASE_URL its server; without a model, answers are extracted from the documents.
"""

import os

from langgraph_convcoa import Overview, build_graph
from langgraph_convcoa.cli.documents import documents_of, open_retriever

retriever = open_retriever(documents_of(os.environ.get("CONVCOA_DOCS"), os.environ.get("CONVCOA_INDEX") or None) or "demo")
graph = build_graph(
    model=os.environ.get("CONVCOA_MODEL") or None,
    base_url=os.environ.get("CONVCOA_BASE_URL") or None,
    retriever=retriever,
    # An engine does not list its documents.
    actions=[Overview(retriever)] if retriever.corpus.complete else [],
).compile()
