"""QReCC (Anantha et al. 2021), as published and as in SCAI-QReCC 2021; its passages are a collection of their own.

A list of {"Conversation_no", "Turn_no", "Context": [q, a, ...], "Question", "Rewrite", "Answer", "Answer_URL"}, or the same
with "Truth_rewrite", "Truth_answer" and "Truth_passages". The collection's ids are the page's address with the end `_p{n}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from langgraph_convcoa.datasets.formats.published import Record, Records, alternating_turns, no_gold, number_field, split_of
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.datasets.rows import Row, json_items, optional_field, text_field
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.text.words import content_words

_PAGE = "page"


def is_qrecc(row: Mapping[str, Any]) -> bool:
    """Whether an object is a turn of QReCC."""
    own = ("Rewrite", "Truth_rewrite", "Answer_URL", "Truth_passages")
    return {"Conversation_no", "Turn_no", "Question"} <= row.keys() and any(key in row for key in own)


def read_qrecc(path: Path, values: Any) -> Records:
    """The turns of a file.

    Raises:
        InputError: A turn is not as published; its file and number are named.
    """
    split = split_of(path)
    for where, row in json_items(values, path):
        conversation = number_field(row, "Conversation_no", where)
        gold = _passages(row, where)
        page = "" if gold else optional_field(row, "Answer_URL", where)
        extra = {_PAGE: page} if page else {}
        yield Record(
            Query(
                id=f"{split or 'qrecc'}-{conversation}-{number_field(row, 'Turn_no', where)}",
                question=text_field(row, "Question", where),
                history=alternating_turns(row.get("Context"), "Context", where),
                gold=gold or ((page,) if page else ()),
                rewrite=optional_field(row, "Truth_rewrite" if "Truth_rewrite" in row else "Rewrite", where),
                answer=optional_field(row, "Truth_answer" if "Truth_answer" in row else "Answer", where),
                split=split,
                conversation=f"{split or 'qrecc'}-{conversation}",
                extra=no_gold(extra, gold or page),
                where=where,
            )
        )


def page_of(identity: str) -> str:
    """The address of the page of a passage of the collection.

    Example:
        >>> page_of("http://a.org/b_page_p12")
        'http://a.org/b_page'
    """
    page, mark, number = identity.rpartition("_p")
    return page if mark and number.isdigit() else identity


def resolve_pages(queries: Iterable[Query], corpus: Sequence[Document]) -> list[Query]:
    """Queries whose gold is a page, with that page's passages that hold most of the answer's words as their gold."""
    listed = list(queries)
    wanted = {query.extra[_PAGE] for query in listed if _PAGE in query.extra}
    pages: dict[str, list[Document]] = {}
    for document in corpus:
        page = page_of(str(document.id))
        if page in wanted:
            pages.setdefault(page, []).append(document)
    return [_resolved(query, pages.get(query.extra[_PAGE], [])) if _PAGE in query.extra else query for query in listed]


def _resolved(query: Query, passages: list[Document]) -> Query:
    words = set(content_words(query.answer))
    shared = [len(words & set(content_words(document.page_content))) for document in passages]
    best = max(shared, default=0)
    gold = tuple(str(document.id) for document, count in zip(passages, shared, strict=True) if count == best)
    return replace(query, gold=gold or query.gold)


def _passages(row: Row, where: str) -> tuple[str, ...]:
    value = row.get("Truth_passages") or []
    if not isinstance(value, list) or not all(isinstance(identity, str) for identity in value):
        raise InputError(f"{where}: `Truth_passages` must be a list of passage ids.")
    return tuple(dict.fromkeys(value))
