"""`convcoa search`: passages of an index or of documents, without an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from langgraph_convcoa.cli.console import citation_line, consoles, path_line, print_json
from langgraph_convcoa.cli.documents import documents_of, open_retriever, read_history
from langgraph_convcoa.cli.options import (
    DEFAULT_MAX_MB,
    AsJson,
    Graph,
    MaxMb,
    NoCache,
    argument,
    named_index,
    option,
    proper_text,
)
from langgraph_convcoa.errors import InputError


def search(
    path: Annotated[str, argument("[PATH]", 'Documents, an index, an engine, or "demo".', show_default=False)],
    query: Annotated[str | None, argument("QUERY", "What to look for.", show_default=False)] = None,
    k: Annotated[int, option("N", "How many passages.", "-k", "--k", min=1, max=100)] = 5,
    history: Annotated[Path | None, option("FILE.json", "Earlier turns: pairs of question and answer, or messages.")] = None,
    graph: Graph = None,
    as_json: AsJson = False,
    max_mb: MaxMb = DEFAULT_MAX_MB,
    no_cache: NoCache = False,
) -> None:
    """Find the passages that fit a question best, without answering it.

    Without PATH the index that CONVCOA_INDEX names is searched.

    [bold]Examples[/bold]
      convcoa search demo "capacity of a Hopfield network" -k 3
      convcoa search papers.index "who wrote it?"
      convcoa search papers.index "when was the author of the first paper born?" --graph
      CONVCOA_INDEX=postgresql://me@db/docs?collection=papers convcoa search "who wrote it?"
      convcoa search papers/ "when was it published?" --history turns.json --json
    """
    if query is None:
        query, named = path, named_index(None, None)
        if named is None:
            raise InputError(f'nothing to search: write convcoa search PATH "{query[:100]}", or set CONVCOA_INDEX')
        path = documents_of(None, named)
    if not query.strip():
        raise InputError("the query is empty: write what to look for")
    turns = read_history(history) if history else []
    retriever = open_retriever(path, k=k, graph=graph, max_mb=max_mb, cache=not no_cache, progress=True)
    found = retriever.invoke(proper_text(query), history=turns)
    if as_json:
        described = ("title", "score", "certified", "quote")
        print_json(
            [
                {"id": document.id, "source": document.metadata.get("source")}
                | {name: document.metadata.get(name, "") for name in described}
                | {name: document.metadata[name] for name in ("graph_path",) if name in document.metadata}
                | {"text": document.page_content}
                for document in found
            ]
        )
        return
    out, err = consoles()
    if not found:
        err.print("Nothing was found.")
    for number, document in enumerate(found, start=1):
        line = citation_line(number, {"id": document.id, **document.metadata})
        out.out(f"{document.metadata['score']:.3f} {line}")
        steps = document.metadata.get("graph_path")
        if isinstance(steps, list) and len(steps) > 2:
            out.out(f"      {path_line(steps)}")
