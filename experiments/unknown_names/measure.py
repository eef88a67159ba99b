"""Questions about names that are in no document: how often the answer is a plain refusal, without a model.

The name of a question that is rarest in the corpus is replaced by an invented or foreign name. Each question is asked as it
is written and in lower case, as many people type.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage

from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.datasets.read import load_part
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.metrics import refuses
from langgraph_convcoa.evaluation.reports import Report, Table, percent
from langgraph_convcoa.graph import build_graph
from langgraph_convcoa.nodes.plan import EXTRACTIVE_K
from langgraph_convcoa.reasoning.extractive.reasoner import ExtractiveReasoner
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.encoders.embeddings import as_encoder
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.text.citation_marks import without_marks
from langgraph_convcoa.text.words import words

_NAME = re.compile(r"(?<=[\w,] )[A-Z][a-zé]{2,}(?: [A-Z][a-zé]{2,})*\b")
_FOREIGN = (
    "Nkechinyere Þorbjörg Wojciechowski Tamatekapua Ngaruawahia Vigdísardóttir Szczebrzeszyn Rakotomalala Ouagounda Kanoelani "
    "Xhantilomzi Tsetsegmaa Gwenllian Oyelaran Llanfihangel Zbigniewicz Hatshikwe Quispeluza Ayodeleke Marjatanpoika"
)
_ONSETS = "b d f g h k l m n p r s t v z br dr gl kr pl st tr vl zw"
_NUCLEI = "a e i o u ai ou"
_CODAS = "l n r s t x m rn lt nd"


class Renamed(NamedTuple):
    """A question about a name that is in no document, and the name that it replaces."""

    query: Query
    name: str
    instead_of: str


@dataclass(frozen=True)
class UnknownNamesReport(Report):
    """Shares of plain refusals, in [0, 1]; `answered` lists the questions that were answered, with their answers."""

    data: str
    split: str
    k: int
    seed: int
    passages: int
    questions: int
    refused: float  # share of plain refusals, the question as written
    refused_lower: float  # the same, the question in lower case
    nearest: float  # share of the refusals that name the nearest passage
    answered: tuple[tuple[str, str], ...]

    def tables(self) -> list[Table]:
        rows = (
            ("plain refusals, the question as written", percent(self.refused)),
            ("plain refusals, in lower case", percent(self.refused_lower)),
            ("refusals that name the nearest passage", percent(self.nearest)),
        )
        title = f"{self.questions:,} questions of {self.data} ({self.split}) about names in none of {self.passages:,} passages"
        answered = Table("Answered all the same", ("question", "answer"), self.answered)
        return [Table(title, ("", "figure"), rows), *([answered] if self.answered else [])]


def evaluate_unknown_names(
    data_folder: str | Path,
    *,
    split: str | None = "dev",
    sample: int = 200,
    seed: int = 0,
    k: int | None = None,
    encoder: Encoder | str | None = None,
    cache: PatternCache | None = None,
    progress: Progress = True,
) -> UnknownNamesReport:
    """Ask the graph, which extracts its answers, questions about names that are in no document of the corpus."""
    for name, value in (("sample", sample), ("k", k)):
        if value is not None and value < 1:
            raise InputError(f"{name} must be at least 1, not {value}.")
    dataset, part = load_part(data_folder, split)
    corpus = [f"{document.metadata.get('title') or ''} {document.page_content}" for document in dataset.corpus]
    renamed = rename(dataset.queries, corpus, sample, seed)
    chosen = as_encoder(encoder)
    retriever = HopfieldRetriever.from_documents(dataset.corpus, encoder=chosen, cache=cache, progress=progress)
    graph = build_graph(retriever=retriever, reasoner=ExtractiveReasoner(chosen)).compile()
    asked = [form for one in renamed for form in (one.query, replace(one.query, question=one.query.question.lower()))]
    answers: list[str] = []
    with track(progress, len(asked), "Asking") as advance:
        for query in asked:
            messages: list[AnyMessage] = [
                message for asked_, said in query.history for message in (HumanMessage(asked_), AIMessage(said))
            ]
            out = graph.invoke({"question": query.question, "messages": messages}, context=ConvCoAContext(k=k))
            answers.append(out["answer"])
            advance(1)
    refusals = [answer for answer in answers if refuses(answer)]
    return UnknownNamesReport(
        data=dataset.name,
        split=part or "all",
        k=k or EXTRACTIVE_K,
        seed=seed,
        passages=len(dataset.corpus),
        questions=len(renamed),
        refused=_share(answers[::2]),
        refused_lower=_share(answers[1::2]),
        nearest=sum(without_marks(answer) != answer for answer in refusals) / max(1, len(refusals)),
        answered=tuple((q.question, answer) for q, answer in zip(asked, answers, strict=True) if not refuses(answer)),
    )


def rename(queries: Sequence[Query], corpus: Sequence[str], sample: int, seed: int) -> list[Renamed]:
    """Questions with one name replaced, in a random order.

    The name with the rarest word of the corpus is replaced. In every second question with a name of several words only its
    rarest word is replaced, so that "Ada Lovelace" becomes "Ada Gwenllian".

    Raises:
        InputError: No question holds a name.
    """
    frequency = Counter(word for text in corpus for word in set(words(text)))
    draw = random.Random(seed)
    found: list[Renamed] = []
    for query in draw.sample(list(queries), len(queries)):
        names = _NAME.findall(query.question)
        if not names:
            continue
        name = min(names, key=lambda each: min(frequency[word] for word in words(each)))
        parts = name.split()
        rarest = min(parts, key=lambda part: frequency[part.lower()])
        given = rarest if len(parts) > 1 and len(found) % 2 else name
        new = unknown_name(draw, frequency)
        question = re.sub(rf"\b{re.escape(given)}\b", new, query.question)
        found.append(Renamed(replace(query, question=question), new, given))
        if len(found) == sample:
            break
    if not found:
        raise InputError("No question holds a name in capital letters that another could replace.")
    return found


def unknown_name(draw: random.Random, known: Collection[str]) -> str:
    """A foreign or an invented name that is not among the known words."""
    while True:
        if draw.random() < 0.5:
            name = draw.choice(_FOREIGN.split())
        else:
            syllables = [draw.choice(_ONSETS.split()) + draw.choice(_NUCLEI.split()) for _ in range(draw.randint(2, 3))]
            name = f"{''.join(syllables)}{draw.choice(_CODAS.split())}".capitalize()
        if name.lower() not in known:
            return name


def _share(answers: Sequence[str]) -> float:
    return sum(map(refuses, answers)) / len(answers)
