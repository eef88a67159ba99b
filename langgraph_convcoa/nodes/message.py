"""The final message: an AIMessage with LangChain's standard citation annotations."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.messages.content import Citation as CitationAnnotation

from langgraph_convcoa.memory.knowledge_set import Citation
from langgraph_convcoa.verification.sentences import statements

_MARK = re.compile(r"\[(\d+)\]")


def answer_message(
    text: str, citations: Sequence[Citation], *, titles: Mapping[str, str] | None = None, message_id: str | None = None
) -> AIMessage:
    """The answer as a message: one text block of LangChain's standard content, with an annotation for each citation.

    `message.text` is the answer. `titles` maps ids of documents to titles; the source stands for a missing one.

    Example:
        >>> cited = [{"id": "a.md#0", "source": "a.md", "quote": "Hopfield described it in 1982."}]
        >>> message = answer_message("It was 1982 [1].", cited)
        >>> message.text
        'It was 1982 [1].'
        >>> message.content_blocks[0]["annotations"][0]["cited_text"]
        'Hopfield described it in 1982.'
    """
    block = {"type": "text", "text": text, "annotations": citation_annotations(text, citations, titles)}
    content: list[str | dict[Any, Any]] = [block]
    # Names the format of the blocks, so that another model's integration translates them.
    return AIMessage(content, id=message_id, response_metadata={"output_version": "v1"})


def citation_annotations(
    text: str, citations: Sequence[Citation], titles: Mapping[str, str] | None = None
) -> list[CitationAnnotation]:
    """One annotation for every [n] of every sentence, in order; [n] is the n-th citation, from 1.

    `start_index` and `end_index` are the characters of the sentence that carries the mark. `extras` has the `id` and the
    `source` of the document, and the `number`.

    Example:
        >>> cited = [{"id": "p1", "source": "https://example.org/a", "quote": "So it is."}]
        >>> [(a["start_index"], a["end_index"], a["url"]) for a in citation_annotations("No. So it is [1].", cited)]
        [(4, 17, 'https://example.org/a')]
    """
    spans = [(statement.start, statement.end) for statement in statements(text)]
    found: dict[tuple[int, int, int], CitationAnnotation] = {}
    for mark in _MARK.finditer(text):
        number = int(mark.group(1)[:9])
        if not 0 < number <= len(citations):
            continue
        start, end = next(((a, b) for a, b in spans if a <= mark.start() < b), mark.span())
        found.setdefault((start, end, number), _annotation(citations[number - 1], number, start, end, titles or {}))
    return list(found.values())


def _annotation(citation: Citation, number: int, start: int, end: int, titles: Mapping[str, str]) -> CitationAnnotation:
    source = citation["source"]
    annotation: CitationAnnotation = {
        "type": "citation",
        "title": titles.get(citation["id"]) or source or citation["id"],
        "start_index": start,
        "end_index": end,
        "cited_text": citation["quote"],
        "extras": {"id": citation["id"], "source": source, "number": number},
    }
    if source.lower().startswith(("http://", "https://")):
        annotation["url"] = source
    return annotation
