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

    `titles` maps ids of documents to titles; by default the title is the source.
    """
    block = {"type": "text", "text": text, "annotations": citation_annotations(text, citations, titles)}
    content: list[str | dict[Any, Any]] = [block]
    # The format of the blocks: other LangChain model packages translate it.
    return AIMessage(content, id=message_id, response_metadata={"output_version": "v1"})


def citation_annotations(
    text: str, citations: Sequence[Citation], titles: Mapping[str, str] | None = None
) -> list[CitationAnnotation]:
    """One annotation for each [n] in each sentence, in order. It covers the sentence; [1] is the first citation."""
    spans = [(statement.start, statement.end) for statement in statements(text)]
    found: dict[tuple[int, int, int], CitationAnnotation] = {}
    for mark in _MARK.finditer(text):
        number = int(mark.group(1)[:9])
        if not 0 < number <= len(citations):
            continue
        start, end = next(((a, b) for a, b in spans if a <= mark.start() < b), mark.span())
        id_, source, quote = (citations[number - 1][key] for key in ("id", "source", "quote"))
        annotation: CitationAnnotation = {
            "type": "citation",
            "title": (titles or {}).get(id_) or source or id_,
            "start_index": start,
            "end_index": end,
            "cited_text": quote,
            "extras": {"id": id_, "source": source, "number": number},
        }
        if source.lower().startswith(("http://", "https://")):
            annotation["url"] = source
        found.setdefault((start, end, number), annotation)
    return list(found.values())
