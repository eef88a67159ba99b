"""Training of a graph reader: questions with short answers, and the cross-entropy of the answers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from langchain_core.documents import Document
from torch import Tensor

from experiments.graph_reader.model import GraphReaderModel, ReaderSettings
from experiments.graph_reader.text import ReaderText, ReaderTokenizer
from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.training.trainer import TrainingSettings, train

MAX_ANSWER_WORDS = 8
YES_NO = ("yes", "no")
# Graph attention is trained from scratch, so it has a higher learning rate than LoRA.
_RATES = {"graph": 2.0}


@dataclass(frozen=True)
class ReaderExample:
    """A question with its passages and its answer; a passage contains the answer, unless the answer is yes or no."""

    query: Query
    documents: tuple[Document, ...]
    answer: str

    def text(self, tokenizer: ReaderTokenizer, *, target: bool) -> ReaderText:
        """The text to read, with the sentence that contains the answer. `target` adds the answer, for training."""
        holds = "" if self.answer.lower() in YES_NO else self.answer
        answer = self.answer if target else None
        return tokenizer.text(self.query.question, self.documents, self.query.history, answer=answer, holds=holds)


def reader_examples(dataset: Dataset, *, passages: int = 4, sample: int | None = None, seed: int = 0) -> list[ReaderExample]:
    """Questions with a short answer in a gold passage, each with this passage and its neighbours in the corpus, shuffled.

    Args:
        dataset: Questions and passages.
        passages: Minimum number of passages for a question, gold ones included.
        sample: Number of examples to draw; all when None.
        seed: Seed of the draws.

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
        if answer.lower() in YES_NO or any(answer in dataset.corpus[place].page_content for place in gold):
            found.append((query, gold, answer))
    if not found:
        raise InputError(
            f"{dataset.name} has no question with an answer of up to {MAX_ANSWER_WORDS} words that stands in a gold passage: "
            "name another data set."
        )
    if sample is not None and sample < len(found):
        found = random.Random(seed).sample(found, sample)
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
    random.Random(seed).shuffle(chosen)
    return [dataset.corpus[place] for place in chosen]


def answer_loss(module: GraphReaderModel, items: Sequence[ReaderText]) -> Tensor:
    """Mean cross-entropy of the answers; the tokens of the prompt do not count."""
    return module.losses(items).mean()


def train_reader(
    examples: Sequence[ReaderExample],
    model: str,
    reader: ReaderSettings,
    training: TrainingSettings,
    *,
    device: str | None = None,
    progress: Progress = False,
) -> GraphReaderModel:
    """Train a graph reader.

    Args:
        examples: Questions to learn from.
        model: A causal language model of Hugging Face, by name or folder.
        reader: Size of the reader.
        training: Length and learning rate.
        device: "cpu", "cuda", ...; None for the best one available.
        progress: A bar, a callback or nothing.

    Raises:
        InputError: There are no examples.
        RetrievalError: The loss is NaN or infinite.
    """
    module = GraphReaderModel.load(model, reader)
    items = [example.text(module.text, target=True) for example in examples]
    train(module, answer_loss, items, training, rates=_RATES, device=device, progress=progress)
    return module
