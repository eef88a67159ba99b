"""What is searched and what is asked in a comparison of retrieval methods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from langchain_core.documents import Document

from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.documents.split import document_id
from langgraph_convcoa.retrieval.index.index import Index


@dataclass(frozen=True)
class Pool:
    """Documents, and the queries of which at least one gold passage is among them.

    Attributes:
        name: The data set's.
        documents: How many documents there are.
        queries: Those that are asked.
        left_out: How many are not, since none of their gold passages is there.
        passages: The documents; none where an index holds them.
        index: What holds them otherwise.
    """

    name: str
    documents: int
    queries: tuple[Query, ...]
    left_out: int
    passages: tuple[Document, ...] = ()
    index: Index | None = None


def passage_pool(dataset: Dataset, distractors: Iterable[Document] = ()) -> Pool:
    """A data set's passages and distractors; of these those with an id or a text that is there already are not added.

    Raises:
        InputError: No query has a gold passage in the pool.
    """
    pool = [document for document in dataset.corpus if document.page_content.strip()]
    ids, texts = {document.id for document in pool}, {document.page_content for document in pool}
    for document in distractors:
        if document.id not in ids and document.page_content not in texts and document.page_content.strip():
            ids.add(document.id)
            texts.add(document.page_content)
            pool.append(document)
    asked = _asked(dataset, {str(identity) for identity in ids})
    return Pool(dataset.name, len(pool), tuple(asked), len(dataset.queries) - len(asked), tuple(pool))


def index_pool(dataset: Dataset, index: Index) -> Pool:
    """The documents of an index; a query's gold passages are looked for among their ids.

    Raises:
        InputError: No query has a gold passage in the index.
        RetrievalError: The index is damaged.
    """
    ids: set[str] = set()
    for _, passages in index.snapshot().batches():
        ids.update(document_id(passage.document) for passage in passages)
    asked = _asked(dataset, ids)
    return Pool(dataset.name, len(ids), tuple(asked), len(dataset.queries) - len(asked), index=index)


def _asked(dataset: Dataset, ids: set[str]) -> Sequence[Query]:
    queries = [query for query in dataset.queries if any(identity in ids for identity in query.gold)]
    if not queries:
        first = next((query for query in dataset.queries if query.gold), None)
        place = f" (the first: {first.gold[0]!r}, {first.where or first.id})" if first else ""
        raise InputError(f"No query of {dataset.name} has a gold passage among the documents that are searched{place}.")
    return queries
