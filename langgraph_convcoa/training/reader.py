"""Training of a graph reader: examples of questions with short answers, and the loss of what it writes."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from langchain_core.documents import Document
from torch import Tensor

from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.files import remove_remains
from langgraph_convcoa.reasoning.graph_reader.model import GraphReaderModel, ReaderSettings
from langgraph_convcoa.reasoning.graph_reader.reader import YES_NO
from langgraph_convcoa.reasoning.graph_reader.storage import check_reader_folder, save_reader
from langgraph_convcoa.reasoning.graph_reader.text import ReaderText, ReaderTokenizer
from langgraph_convcoa.training.job import TrainingJob
from langgraph_convcoa.training.loop.trainer import TrainingSettings, train

MAX_ANSWER_WORDS = 8
_RATES = {"graph": 2.0}
"""Graph attention is trained from scratch, so faster than LoRA."""


@dataclass(frozen=True)
class ReaderExample:
    """A question with the passages to read and its answer, which stands in one of them unless it is yes or no."""

    query: Query
    documents: tuple[Document, ...]
    answer: str

    def text(self, tokenizer: ReaderTokenizer, *, target: bool) -> ReaderText:
        """As a reader is given it, with the sentence that holds the answer in any case; with the answer for training."""
        holds = "" if self.answer.lower() in YES_NO else self.answer
        told = self.answer if target else None
        return tokenizer.text(self.query.question, self.documents, self.query.history, answer=told, holds=holds)


def reader_examples(dataset: Dataset, *, passages: int = 4, sample: int | None = None, seed: int = 0) -> list[ReaderExample]:
    """The questions with a short answer that a gold passage holds, each with its passages and their neighbours in the corpus.

    Neighbours are distractors of the same article, or those that the data set gives with a question. They are in an order that
    is drawn, the same for the same question.

    Args:
        dataset: Questions and passages.
        passages: How many of these there are at least, gold ones among them.
        sample: So many examples, drawn; all when None.
        seed: Of the draws.

    Raises:
        InputError: There is no such question.
    """
    places = {str(document.id): place for place, document in enumerate(dataset.corpus)}
    found = []
    for query in dataset.queries:
        gold = sorted({places[identity] for identity in query.gold if identity in places})
        answer = query.answer.strip()
        if not gold or not 0 < len(answer.split()) <= MAX_ANSWER_WORDS:
            continue
        if answer.lower() not in YES_NO and not any(answer in dataset.corpus[place].page_content for place in gold):
            continue
        found.append((query, gold, answer))
    if not found:
        raise InputError(
            f"{dataset.name} has no question with an answer of up to {MAX_ANSWER_WORDS} words that stands in a gold passage: "
            "name another data set."
        )
    if sample is not None and sample < len(found):
        found = random.Random(seed).sample(found, sample)  # noqa: S311 - a draw, not a secret
    return [
        ReaderExample(query, tuple(_with_neighbours(dataset, gold, passages, f"{seed} {query.id}")), answer)
        for query, gold, answer in found
    ]


def _with_neighbours(dataset: Dataset, gold: Sequence[int], passages: int, seed: str) -> list[Document]:
    chosen = list(gold)
    for distance in range(1, passages):
        for place in (place + side for place in gold for side in (-distance, distance)):
            if len(chosen) < passages and 0 <= place < len(dataset.corpus) and place not in chosen:
                chosen.append(place)
    random.Random(seed).shuffle(chosen)  # noqa: S311 - a draw, not a secret
    return [dataset.corpus[place] for place in chosen]


@dataclass(frozen=True)
class ReaderTraining:
    """How a reader is trained: the paper's four questions a step, at a higher rate for its few steps."""

    training: TrainingSettings = field(
        default_factory=lambda: TrainingSettings(batch_size=4, learning_rate=5e-4, warmup=0.1, checkpoint_every=50)
    )
    reader: ReaderSettings = field(default_factory=ReaderSettings)


class AnswerLoss:
    """Cross-entropy of the answers; the tokens of the prompt have none."""

    def represent(self, module: GraphReaderModel, items: Sequence[ReaderText]) -> tuple[Tensor, ...]:
        return (module.losses(items),)

    def loss(self, module: GraphReaderModel, vectors: tuple[Tensor, ...], items: Sequence[ReaderText]) -> Mapping[str, Tensor]:
        return {"answer": vectors[0].mean()}


def train_reader(
    examples: Sequence[ReaderExample], model: str, *, settings: ReaderTraining | None = None, job: TrainingJob | None = None
) -> GraphReaderModel:
    """Train a graph reader, and save it where the job says.

    Args:
        examples: What is learned from.
        model: A causal language model of Hugging Face, by name or folder; it is not changed.
        settings: How long, how fast, and what the reader is made of.
        job: Where the reader and the state of an unfinished training go; `cache` is not used.

    Raises:
        InputError: There is nothing to learn from, or an unfinished training is there and not to be resumed.
        ModelError: The model cannot be loaded or the reader not be written, or the extra `graph-reader` is missing.
        RetrievalError: The loss is NaN or infinite, or the checkpoint is damaged or cannot be written.
    """
    chosen, job = settings or ReaderTraining(), job or TrainingJob()
    if job.out is not None:
        check_reader_folder(job.out)
        job.check_place()
    module = GraphReaderModel.of(model, chosen.reader)
    items = [example.text(module.text, target=True) for example in examples]
    told = {"reader": asdict(chosen.reader), "model": model, "examples": _digest(items)}
    training = chosen.training
    if training.steps is None:
        training = replace(training, steps=training.epochs * -(-len(items) // training.batch_size))
    state = train(
        module, AnswerLoss(), items, training, fingerprint=json.dumps(told, sort_keys=True), rates=_RATES, **job.options
    )
    if job.out is not None and job.checkpoint is not None:
        save_reader(module, job.out, base=model, told={"trained": state.settings, "command": job.command})
        job.checkpoint.unlink(missing_ok=True)
        remove_remains(job.checkpoint)
    return module


def _digest(items: Sequence[ReaderText]) -> str:
    digest = hashlib.sha256()
    for item in items:
        digest.update(repr((item.prefix, item.graph.tokens, item.graph.evidence, item.suffix, item.answer)).encode())
    return digest.hexdigest()[:16]
