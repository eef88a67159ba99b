"""Guesses of a model with labels of a person: how many of the supported ones verification keeps, and of the others."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from langchain_core.documents import Document
from pydantic import BaseModel, ConfigDict, ValidationError
from sklearn.metrics import roc_auc_score

from langgraph_convcoa.datasets.read import load_dataset
from langgraph_convcoa.datasets.rows import json_lines
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.reports.kit import Report, Table, shown
from langgraph_convcoa.retrieval.documents.split import split_documents
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.verification.mrfs import ConvMRFS, conv_mrfs
from langgraph_convcoa.verification.support import Similarity

SUPPORTED = 2
"""The label of a guess that its passages support fully; 1: in part, or it is only near; 0: not."""
HALVES = ("looked at", "held out")
"""Halves of the conversations by a checksum of their name: only the first may be looked at when anything is chosen."""


class LabelledGuess(BaseModel):
    """A row of a file of labelled guesses; `passages` are ids of the data set `data`, with "#n" for a part of a long one."""

    model_config = ConfigDict(strict=True)

    id: str
    data: str
    conversation: str
    sub_question: str
    guess: str
    passages: list[str]
    label: int
    kind: str = ""
    origin: str = ""

    @property
    def half(self) -> str:
        """The half of the conversations that it is of, one of `HALVES`."""
        return HALVES[hashlib.sha256(self.conversation.encode()).digest()[0] % 2]


@dataclass(frozen=True)
class LabelledRow:
    """A group of guesses: how many are labelled as fully supported, in part and not, the share of each that is kept (None
    where there is none), and the AUC of fully supported ones against unsupported ones.
    """

    group: str
    counts: tuple[int, int, int]
    kept: tuple[float | None, float | None, float | None]
    auc: float | None


@dataclass(frozen=True)
class LabelledReport(Report):
    """What verification keeps of labelled guesses, by half of the conversations, by origin and by form."""

    rows: tuple[LabelledRow, ...]

    def tables(self) -> tuple[Table, ...]:
        columns = ("guesses", "supported", "in part", "not", "supported kept", "in part kept", "not supported, kept", "AUC")
        rows = [[r.group, *map(str, r.counts), *(shown(k) or "-" for k in r.kept), shown(r.auc) or "-"] for r in self.rows]
        return (Table("", columns, rows),)


def load_labelled(file: str | Path) -> list[LabelledGuess]:
    """Read labelled guesses, a JSON object a line.

    Raises:
        InputError: The file cannot be read, or a row lacks a field or has a wrong one; the message names the line.
    """
    found = []
    for data in json_lines(Path(file)):
        try:
            found.append(LabelledGuess.model_validate(data))
        except ValidationError as error:
            first = error.errors()[0]
            raise data.error(f"{'.'.join(map(str, first['loc']))}: {first['msg']}.") from None
    return found


def passages_of(guesses: Sequence[LabelledGuess], folder: str | Path, encoder: Encoder) -> list[list[Document]]:
    """The passages of each guess, from the data sets in the subfolders of a folder; long ones split for the encoder.

    Raises:
        InputError: A data set or one of its passages is not there.
    """
    texts: dict[tuple[str, str], Document] = {}
    for name in sorted({guess.data for guess in guesses}):
        wanted = {id_.split("#")[0] for guess in guesses if guess.data == name for id_ in guess.passages}
        corpus = [document for document in load_dataset(Path(folder) / name).corpus if document.id in wanted]
        texts |= {(name, str(document.id)): document for document in corpus}
        texts |= {(name, str(document.id)): document for document in split_documents(corpus, encoder)} if corpus else {}
    missing = next(((g, id_) for g in guesses for id_ in g.passages if (g.data, id_) not in texts), None)
    if missing:
        raise InputError(f"{Path(folder) / missing[0].data} has no passage {missing[1]!r}, which {missing[0].id} names.")
    return [[texts[guess.data, id_] for id_ in guess.passages] for guess in guesses]


def evaluate_labelled(
    file: str | Path, folder: str | Path, encoder: Encoder, *, similarity: Similarity | None = None
) -> LabelledReport:
    """Verify labelled guesses against the passages that were retrieved for them; no model is asked.

    `folder` holds the data sets whose passages the rows name; `similarity` is that of `conv_mrfs`.

    Raises:
        InputError: As `load_labelled` and `passages_of`.
    """
    guesses = load_labelled(file)
    passages = passages_of(guesses, folder, encoder)
    verdicts = [
        conv_mrfs(guess.guess, documents, question=guess.sub_question, similarity=similarity)
        for guess, documents in zip(guesses, passages, strict=True)
    ]
    return LabelledReport(tuple(_rows(guesses, verdicts)))


def _rows(guesses: Sequence[LabelledGuess], verdicts: Sequence[ConvMRFS]) -> Iterator[LabelledRow]:
    groups = [("all", [True] * len(guesses)), *((half, [g.half == half for g in guesses]) for half in HALVES)]
    groups += [(origin, [g.origin == origin for g in guesses]) for origin in sorted({g.origin for g in guesses} - {""})]
    groups += [(kind, [g.kind == kind for g in guesses]) for kind in sorted({g.kind for g in guesses} - {""})]
    labels = np.array([guess.label for guess in guesses])
    kept = np.array([verdict.faithful for verdict in verdicts])
    scores = np.array([verdict.score for verdict in verdicts])
    for name, members in groups:
        chosen = np.array(members, dtype=bool)
        parts = [chosen & (labels == label) for label in (SUPPORTED, 1, 0)]
        ends = parts[0] | parts[2]
        auc = float(roc_auc_score(labels[ends] == SUPPORTED, scores[ends])) if parts[0].any() and parts[2].any() else None
        yield LabelledRow(
            group=name,
            counts=(int(parts[0].sum()), int(parts[1].sum()), int(parts[2].sum())),
            kept=tuple(float(kept[part].mean()) if part.any() else None for part in parts),  # type: ignore[arg-type]
            auc=auc,
        )
