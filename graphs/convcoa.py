"""The conversation graph for LangGraph Studio.

CONVCOA_DOCS is a file or folder, or else CONVCOA_INDEX an index or the address of an engine (the demonstration's documents
without either), CONVCOA_MODEL a chat model and CONVCOA_BASE_URL its server; without a model, answers are extracted from the
documents.
"""

import os

from langgraph_convcoa import Overview, build_graph
from langgraph_convcoa.cli.documents import documents_of, open_retriever
from langgraph_convcoa.cli.options import named_index

docs = os.environ.get("CONVCOA_DOCS")
retriever = open_retriever(documents_of(docs, named_index(docs, None)) or "demo")
graph = build_graph(
    model=os.environ.get("CONVCOA_MODEL") or None,
    base_url=os.environ.get("CONVCOA_BASE_URL") or None,
    retriever=retriever,
    # An engine does not list its documents.
    actions=[Overview(retriever)] if retriever.corpus.complete else [],
).compile()
