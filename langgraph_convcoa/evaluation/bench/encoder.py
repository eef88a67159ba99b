"""Benchmark of an encoder's number types: speed, memory, closeness to float32, retrieval and outliers."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import get_args

import numpy as np
import torch

from langgraph_convcoa.datasets.demo import demo_folder
from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.bench.encoder_training import train_pairs
from langgraph_convcoa.evaluation.bench.outliers import Outliers, measure_outliers
from langgraph_convcoa.evaluation.metrics.ranking import recall, reciprocal_rank
from langgraph_convcoa.evaluation.reports.kit import Report, Table, shown
from langgraph_convcoa.retrieval.documents.load import load_documents
from langgraph_convcoa.retrieval.documents.split import pattern_text
from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER, Vectors
from langgraph_convcoa.retrieval.encoders.loading import weight_bytes
from langgraph_convcoa.retrieval.encoders.outlier_free import ATTENTIONS, Attention
from langgraph_convcoa.retrieval.encoders.sentence_transformer import Dtype, SentenceTransformerEncoder
from langgraph_convcoa.retrieval.progress import Progress, track

TYPES: tuple[Dtype, ...] = ("float32", "bfloat16", "torchao-int8")

_BATCH = 32
_MEGABYTE = 1e6
_RANKED = 100


@dataclass(frozen=True)
class EncoderRow:
    """One type, with an attention, after so many steps of training.

    `cosine` and `least_cosine` are those of its vectors with float32's, else alike; MRR and Recall@10 are over the data, None
    without; `weights_mb` is in millions of bytes.
    """

    dtype: str
    attention: str
    steps: int
    cosine: float
    least_cosine: float
    mrr: float | None
    recall_10: float | None
    texts_per_second: float
    to_float32: float
    weights_mb: float


@dataclass(frozen=True)
class OutlierRow:
    """The activations of the encoder in float32, with an attention, after so many steps of training."""

    attention: str
    steps: int
    outliers: Outliers


@dataclass(frozen=True)
class EncoderReport(Report):
    """Measures of one encoder in its types; `tokens` is the mean length of the timed texts, `runs` alternate the types."""

    model: str
    rows: tuple[EncoderRow, ...]
    outliers: tuple[OutlierRow, ...]
    texts: int
    tokens: float
    threads: int
    runs: int
    dataset: str | None
    queries: int

    def tables(self) -> tuple[Table, ...]:
        data = f"; MRR over {self.queries} queries of {self.dataset}, whole passages" if self.dataset else ""
        note = f"{self.texts} texts of {self.tokens:.0f} tokens, {self.threads} threads, {self.runs} alternating runs{data}"
        types = []
        for r in self.rows:
            quality = [f"{r.cosine:.5f}", f"{r.least_cosine:.5f}", shown(r.mrr, 4), shown(r.recall_10, 4)]
            times = [shown(r.texts_per_second, 0), shown(r.to_float32, 2), shown(r.weights_mb, 1)]
            types.append([r.dtype, r.attention, str(r.steps), *quality, *times])
        reach = []
        for row in self.outliers:
            o = row.outliers
            values = (o.attention_norm, o.attention_kurtosis, o.layer_norm, o.layer_kurtosis)
            reach.append([row.attention, str(row.steps), *(shown(value, 2) for value in values)])
        figures = ("cosine", "least", "MRR", "Recall@10", "texts/s", "to float32", "weights, MB")
        norms = ("attention", "steps", "norm, attention", "kurtosis", "norm, layer", "kurtosis")
        return (
            Table(self.model, ("type", "attention", "steps", *figures), types, note, left=2),
            Table("outliers: infinity norm and kurtosis of the activations", norms, reach),
        )


def bench_encoder(
    model: str = DEFAULT_ENCODER,
    *,
    dtypes: Sequence[Dtype] | None = None,
    attentions: Sequence[Attention] = ATTENTIONS,
    dataset: Dataset | None = None,
    queries: int | None = None,
    texts: int = 128,
    runs: int = 5,
    train: Dataset | None = None,
    steps: int = 0,
    progress: Progress = False,
) -> EncoderReport:
    """Measure an encoder in several types, with softmax and with softmax_1, and again after a short training.

    Speed is of batches of 32 texts (passages of the data, or of the demonstration's documents), the types taking turns in
    every run. For the measures over data every question, put behind the user turn before it, ranks the whole passages by
    cosine, both encoded in the type. A trained encoder is converted to the types afterwards.

    The types are those whose packages are installed when None; float32, which the others are compared with, is always among
    them. A model need not be trained with the attention it is measured with. `train` is data that it is trained on for so many
    steps with each attention (`train_pairs`).

    Raises:
        InputError: A type or an attention is unknown, a number is below 1, or the data has no query with a passage.
        RetrievalError: The model cannot be loaded, or not in one of the types.
    """
    if dtypes is None:
        dtypes = TYPES if importlib.util.find_spec("torchao") is not None else TYPES[:2]
    _check(dtypes, attentions, texts, runs, queries)
    if steps < 0 or (steps and train is None):
        raise InputError("Steps must be at least 0, and to train there must be data to train on (--data).")
    sample = _sample(dataset, texts)
    asking = dataset.answerable()[:queries] if dataset else ()
    chosen: list[Dtype] = list(dict.fromkeys(("float32", *dtypes)))
    rows: list[EncoderRow] = []
    outliers: list[OutlierRow] = []
    with TemporaryDirectory() as folder:
        sources = [(attention, 0, model) for attention in dict.fromkeys(attentions)]
        if steps and train is not None:
            for attention in dict.fromkeys(attentions):
                target = Path(folder) / attention
                train_pairs(model, target, train, attention=attention, steps=steps, progress=progress)
                sources.append((attention, steps, str(target)))
        with track(progress, len(sources) * len(chosen), "Measuring") as advance:
            for attention, trained, source in sources:
                encoders = {
                    dtype: SentenceTransformerEncoder(source, batch_size=_BATCH, dtype=dtype, attention=attention)
                    for dtype in chosen
                }
                vectors = {dtype: encoder.encode_passages(sample) for dtype, encoder in encoders.items()}
                found = measure_outliers(encoders["float32"].model, sample, batch_size=_BATCH)
                outliers.append(OutlierRow(attention, trained, found))
                speeds = _speeds(encoders, sample, runs)
                for dtype, encoder in encoders.items():
                    cosines = (vectors[dtype] * vectors["float32"]).sum(axis=1)
                    figures = float(cosines.mean()), float(cosines.min()), *_quality(encoder, dataset, asking)
                    speed = speeds[dtype], speeds[dtype] / speeds["float32"]
                    size = weight_bytes(encoder.model) / _MEGABYTE
                    rows.append(EncoderRow(dtype, attention, trained, *figures, *speed, size))
                    advance(1)
    lengths = np.minimum(encoders["float32"].count_tokens_batch(sample), encoders["float32"].max_tokens)
    timed = len(sample), float(np.mean(lengths)), torch.get_num_threads(), runs
    return EncoderReport(model, tuple(rows), tuple(outliers), *timed, dataset.name if dataset else None, len(asking))


def _check(dtypes: Sequence[str], attentions: Sequence[str], texts: int, runs: int, queries: int | None) -> None:
    for what, given, known in (("type", dtypes, TYPES), ("attention", attentions, get_args(Attention))):
        unknown = [name for name in given if name not in known]
        if unknown or not given:
            raise InputError(f"There is no {what} {', '.join(unknown) or '(none named)'}; choose from {', '.join(known)}.")
    if min(texts, runs, queries if queries is not None else 1) < 1:
        raise InputError("Texts, runs and queries must be at least 1.")


def _sample(dataset: Dataset | None, count: int) -> list[str]:
    documents = dataset.corpus if dataset else load_documents(demo_folder())
    texts = [pattern_text(document) for document in documents]
    if dataset is None:
        # The demonstration has few documents: their paragraphs, over and over, none twice in a batch.
        texts = [part.strip() for text in texts for part in text.split("\n\n") if len(part.split()) > 5]
        texts *= -(-count // len(texts))
    return texts[:count]


def _speeds(encoders: dict[Dtype, SentenceTransformerEncoder], sample: Sequence[str], runs: int) -> dict[Dtype, float]:
    seconds: dict[Dtype, list[float]] = {dtype: [] for dtype in encoders}
    for _ in range(runs):
        for dtype, encoder in encoders.items():
            start = time.perf_counter()
            encoder.encode_passages(sample)
            seconds[dtype].append(time.perf_counter() - start)
    return {dtype: len(sample) / float(np.median(values)) for dtype, values in seconds.items()}


def _quality(
    encoder: SentenceTransformerEncoder, dataset: Dataset | None, asking: Sequence[Query]
) -> tuple[float | None, float | None]:
    if dataset is None:
        return None, None
    passages: Vectors = encoder.encode_passages([pattern_text(document) for document in dataset.corpus])
    scores = encoder.encode_queries([query.two_turns for query in asking]) @ passages.T
    order = np.argsort(-scores, axis=1, kind="stable")[:, :_RANKED]
    rankings = [[str(dataset.corpus[i].id) for i in row] for row in order]
    ranks = [reciprocal_rank(ranking, query.gold) for ranking, query in zip(rankings, asking, strict=True)]
    shares = [recall(ranking, query.gold, 10) for ranking, query in zip(rankings, asking, strict=True)]
    return float(np.mean(ranks)), float(np.mean(shares))
