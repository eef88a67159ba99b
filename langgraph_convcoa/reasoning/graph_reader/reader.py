"""The graph reader as a reasoner: it answers what another plans."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig

from langgraph_convcoa.chain import ActionChain
from langgraph_convcoa.reasoning.base import Corrected, Correction, CorrectRequest, History, PlanRequest, Reasoner, Unsolved
from langgraph_convcoa.reasoning.extractive.query import make_query
from langgraph_convcoa.reasoning.extractive.reasoner import ExtractiveReasoner
from langgraph_convcoa.reasoning.extractive.sentence_ranking import rank_sentences
from langgraph_convcoa.reasoning.graph_reader.storage import load_reader

YES_NO = ("yes", "no")


class Reading(NamedTuple):
    """A short answer and the document that it stands in, counted from 0; -1 where it stands in none.

    Yes and no stand nowhere: theirs is the document with the sentence that fits the question best.
    """

    answer: str
    document: int


class GraphReader(Reasoner):
    """Reads evidence as a graph of tokens and answers in a few words, with a local language model (Jain & Lapata 2024).

    Questions are planned by another reasoner; this one answers every sub-question from the evidence found for it. An answer
    that stands in none of that evidence is not given: the language model made it up. Yes and no are given, with the passage
    that fits the question best.

    Args:
        folder: A reader that `convcoa train-reader` made.
        planner: Splits questions and chooses actions; an `ExtractiveReasoner`, which needs no model, when None.
        model: Name or folder of the language model, where it is no longer where it was trained.
        device: "cpu", "cuda", ...

    Raises:
        ModelError: There is no reader, it is damaged, its language model cannot be loaded or is another one, or the extra
            `graph-reader` is missing.

    Example:
        >>> GraphReader("none")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        langgraph_convcoa.errors.ModelError: none holds no reader (...); train one: convcoa train-reader ...
    """

    def __init__(
        self, folder: str | Path, *, planner: Reasoner | None = None, model: str | None = None, device: str | None = None
    ) -> None:
        self.planner = planner or ExtractiveReasoner()
        self.plans_over_evidence = bool(getattr(self.planner, "plans_over_evidence", True))
        self._model = load_reader(folder, base=model, device=device)
        self._one_at_a_time = threading.Lock()

    def plan(self, request: PlanRequest, config: RunnableConfig | None = None) -> ActionChain:
        """As the planner plans."""
        return self.planner.plan(request, config)

    async def aplan(self, request: PlanRequest, config: RunnableConfig | None = None) -> ActionChain:
        return await self.planner.aplan(request, config)

    def correct(self, request: CorrectRequest, config: RunnableConfig | None = None) -> Corrected:
        """A short answer for each item, with the evidence that it stands in; the chain of them is the final answer.

        What has no items, such as a greeting, and the sentences of a planner's own answer are left to the planner.
        """
        if not request.items or request.draft:
            return self.planner.correct(request, config)
        places = {document.id: number for number, document in enumerate(request.evidence, start=1)}
        read = self.read([(item.sub_question, item.evidence) for item in request.items], request.history)
        return Corrected([_correction(item, reading, places) for item, reading in zip(request.items, read, strict=True)])

    def read(self, asked: Sequence[tuple[str, Sequence[Document]]], history: History = ()) -> list[Reading]:
        """The answers to questions over documents, best first; "" over none."""
        given = [number for number, (_, documents) in enumerate(asked) if documents]
        told = [""] * len(asked)
        with self._one_at_a_time:
            texts = [self._model.text.text(*asked[number], history) for number in given]
            # Of documents without a sentence nothing is left to read.
            there = [place for place, text in enumerate(texts) if text.graph.evidence]
            written = self._model.answers([texts[place] for place in there])
        for place, answer in zip(there, written, strict=True):
            told[given[place]] = answer
        return [Reading(answer, _place(answer, *one, history)) for answer, one in zip(told, asked, strict=True)]


def _correction(item: Unsolved, reading: Reading, places: dict[str | None, int]) -> Correction:
    answer = reading.answer
    if not answer:
        return Correction(item.index, "", "no evidence was found", supported=False)
    if reading.document < 0:
        return Correction(item.index, "", "the reader's answer stands in no evidence", supported=False)
    number = places.get(item.evidence[reading.document].id)
    return Correction(item.index, answer, "read by the graph reader", evidence=() if number is None else (number,))


def _place(answer: str, question: str, documents: Sequence[Document], history: History) -> int:
    wanted = " ".join(answer.lower().split()).rstrip(".")
    if not wanted:
        return -1
    if wanted in YES_NO:
        return next((sentence.document for sentence in rank_sentences(make_query(question, history), documents)), -1)
    # As whole words, and no part of a figure: neither "art" in "start" nor "5" in "3.5".
    whole = re.compile(rf"(?<!\w)(?<!\d[.,]){re.escape(wanted)}(?!\w)(?!(?<=\d)[.,]\d)")
    texts = (f"{document.metadata.get('title') or ''}: {document.page_content}" for document in documents)
    return next((number for number, text in enumerate(texts) if whole.search(" ".join(text.lower().split()))), -1)
