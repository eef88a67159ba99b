"""The conversation graph for LangGraph Studio.

CONVCOA_DOCS is a file or folder. Without it, CONVCOA_INDEX is an index or the address of an engine. Without either, the
demonstration's documents are used. CONVCOA_MODEL is a chat model, CONVCOA_BASE_URL its server. Without a model, answers are
extracted.
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
