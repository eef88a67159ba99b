"""Training of a reranker: layers of the encoder that read a question with its turns, and a passage."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from transformers import set_seed

from langgraph_convcoa.datasets.queries import Dataset
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.cross_encoder import LONGEST, token_types
from langgraph_convcoa.retrieval.documents.split import document_id, pattern_text
from langgraph_convcoa.retrieval.encoders.base import Encoder
from langgraph_convcoa.retrieval.encoders.embeddings import as_encoder
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from langgraph_convcoa.retrieval.memory_corpus import Memory, MemoryCorpus, build_memory
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.retrieval.reranker import TrainedReranker, conversation_text, default_reranker
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from langgraph_convcoa.training.data import TrainingData, TrainingExample, fingerprint, gold_sets
from langgraph_convcoa.training.synthetic import with_synthetic
from langgraph_convcoa.training.trainer import TrainingJob, TrainingSettings, Unfinished, train, without_training, writable
from langgraph_convcoa.training.verifier import TextPairNetwork, padded, pair_tokenizer
from langgraph_convcoa.verification.trained import packaged_verifier

MODEL = "reranker.safetensors"
_FOUND, _CANDIDATES, _READ, _NEGATIVES, _AT_ONCE = 60, 30, 20, 7, 64
_HELD_OUT, _JUDGED, _WEIGHTS = 12, 600, (0.03, 0.05, 0.1)
"""One gold passage in 12 is held out with its questions. At most 600 of these questions choose the weight."""
_CARD = """# A reranker

A cross-encoder: (question with its turns, passage) to the logit of the probability that the passage answers the question.

- Base: {base}. Embeddings of words and positions unchanged.
- Questions: {questions}.
- Training: {training}; cross entropy over a gold passage and seven wrong ones of the first 30 of the search.
- Weight: {weight}.
- Command: `{command}`
- Measure it on questions that it was not trained on: `HopfieldRetriever(rerank=20, reranker=FILE)`.
"""


@dataclass(frozen=True)
class RerankerSettings:
    """Settings of a reranker's training."""

    training: TrainingSettings = field(
        default_factory=lambda: TrainingSettings(steps=1_000, learning_rate=3e-4, warmup=0.05, weight_decay=0.01)
    )
    synthetic: int = 6_000  # Synthetic conversations, made of the single-turn data.
    single: int = 8_000  # Single-turn questions that are learned as they are.
    layers: tuple[int, ...] | None = None  # Layers of the encoder, numbered from 0; every second one when None.


class RankedQuestion(NamedTuple):
    """A question and at least one passage that answers it, among the passages that a search finds."""

    text: str  # The question with its turns (`conversation_text`).
    passages: list[str]  # Best first, one for each document. If the search finds no right passage, one is added last.
    scores: list[float]  # Scores of the search; minus infinity for an added passage.
    right: list[bool]  # True for passages that answer the question.

    def reciprocal_rank(self, logits: Sequence[float], weight: float) -> float:
        """1 / rank of the first right passage by score + weight * logit, else 0. Only passages that have `logits` count."""
        sums = np.array(self.scores[: len(logits)]) + weight * np.array(logits)
        places = np.flatnonzero(np.array(self.right)[np.argsort(-sums, kind="stable")])
        return 1 / (1 + float(places[0])) if len(places) else 0.0


def reranker_loss(tokenizer: Any, network: TextPairNetwork, groups: Sequence[tuple[str, list[str]]]) -> Tensor:
    """Cross entropy over the passages of each group: a question with a right passage and then wrong passages."""
    pairs = [(text, passage[:LONGEST]) for text, passages in groups for passage in passages]
    encoded = zip(tokenizer.encode_batch(pairs), pairs, strict=True)
    batch = padded([{"ids": one.ids, "types": token_types(one, *pair), "label": 0.0} for one, pair in encoded])
    device = network.shared.device
    logits = network.logits(*(batch[name].to(device) for name in ("ids", "types", "mask"))).view(len(groups), -1)
    return nn.functional.cross_entropy(logits, torch.zeros(len(groups), dtype=torch.long, device=device))


def train_reranker(
    data: TrainingData | None,
    *,
    job: TrainingJob,
    single_turn: Sequence[Dataset] = (),
    encoder: Encoder | str | None = None,
    settings: RerankerSettings | None = None,
    start: str | Path | None = "verifier",
) -> TrainedReranker:
    """Train a reranker and save it as `reranker.safetensors` in the folder `job.out`, with a model card.

    It learns to tell a gold passage from wrong passages that the search with `encoder` finds. `single_turn` are single
    questions over titled passages. `start` is "verifier" or "reranker" (those of the package, for the default encoder), the
    file of another verifier or reranker, or None for the encoder's weights. A reranker as `start` keeps its layers.

    Raises:
        InputError: No question has a gold passage and a wrong one, the extra `train` is missing, or the folder is in use.
        RetrievalError: The encoder or `start` cannot be loaded, or the folder cannot be written.
    """
    chosen, kept = settings or RerankerSettings(), as_encoder(encoder)
    if job.out is None or not isinstance(kept, SentenceTransformerEncoder):
        raise InputError("A reranker needs a folder (`job.out`), and a sentence-transformers model whose layers it copies.")
    job.check()
    folder, unfinished, base, training = Path(job.out), Unfinished.beside(job.out), kept.model_name, chosen.training
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} holds other files; name an empty or a new folder.")
    set_seed(training.seed)
    network = TextPairNetwork(base, dropout=0.05)
    if start is not None:
        with packaged_verifier() as packaged:
            packed = {"verifier": packaged, "reranker": default_reranker().path}
            network.load(packed.get(str(start), Path(start)), base)
    if network.layers is None:
        network.keep(chosen.layers or range(0, len(network.bert.encoder.layer), 2))
    real = data or TrainingData((), ())
    all_data = with_synthetic(real, single_turn, synthetic=chosen.synthetic, single=chosen.single, seed=training.seed)
    memory = build_memory(all_data.passages, kept, cache=job.cache, progress=job.progress)
    retriever = HopfieldRetriever(corpus=MemoryCorpus(memory), encoder=kept, graph=None, rerank=0)
    learned, held_out = list[RankedQuestion](), list[RankedQuestion]()
    # Real conversations are drawn twice as often as the others.
    for times, examples in ((2, real.examples), (1, all_data.examples[len(real.examples) :])):
        for one in ranked_questions(examples, memory, retriever, job.progress):
            if zlib.crc32(one.passages[one.right.index(True)].encode()) % _HELD_OUT:
                learned += [one] * times
            else:
                held_out.append(one)
    learned, judged = learned or held_out, held_out or learned
    if not learned:
        raise InputError("The data has no question with a gold passage and a wrong one; a reranker learns from both.")
    count = training.batch_size * (training.steps or training.epochs * -(-len(learned) // training.batch_size))
    groups = draw_groups(learned, count, training.seed)
    known = without_training(chosen) | {"start": str(start), "data": fingerprint(base, [one[:2] for one in learned])}
    train(network, partial(reranker_loss, pair_tokenizer(base)), groups, training, about=known, **job.options)
    with writable(folder):
        # The model is written beside the checkpoints first, so that a stop here can be resumed.
        draft = TrainedReranker(unfinished.folder / MODEL)
        network.save(draft.path, "reranker", 0.0, base)
        judged = judged[:: 1 + len(judged) // _JUDGED]
        logits = [draft.logits(one.text, one.passages[:_READ]) for one in judged]
        ranks = {
            weight: np.mean([one.reciprocal_rank(found, weight) for one, found in zip(judged, logits, strict=True)])
            for weight in (0.0, *_WEIGHTS)
        }
        weight = max(_WEIGHTS, key=ranks.__getitem__)
        folder.mkdir(parents=True, exist_ok=True)
        network.save(folder / MODEL, "reranker", weight, base)
        card = _CARD.format(
            base=f"{base}, layers {network.layers}. Start: {start or 'its own weights'}",
            questions=", ".join(f"{source} {count:,}" for source, count in all_data.sources.items()),
            training=f"{len(groups) // training.batch_size:,} batches of {training.batch_size}, seed {training.seed}",
            weight=f"{weight}. MRR of {len(judged)} held-out questions: {ranks[weight]:.3f}; of the search {ranks[0.0]:.3f}",
            command=job.command or "none",
        )
        (folder / "README.md").write_text(card, encoding="utf-8")
        unfinished.remove()
    return TrainedReranker(folder / MODEL)


def ranked_questions(
    examples: Sequence[TrainingExample], memory: Memory, retriever: HopfieldRetriever, progress: Progress = False
) -> list[RankedQuestion]:
    """Search for the questions that have a gold passage. Questions that find only gold passages are left out."""
    numbers = {str(passage.id): number for number, passage in enumerate(memory.passages)}
    texts, gold, found = [pattern_text(passage) for passage in memory.passages], gold_sets(memory), []
    asked = [(example, own) for example in examples if (own := gold(example.gold))]
    with track(progress, len(asked), "Searching") as advance:
        for start in range(0, len(asked), _AT_ONCE):
            part = asked[start : start + _AT_ONCE]
            questions, histories = [one.question for one, _ in part], [one.history for one, _ in part]
            for (one, own), hits in zip(part, retriever.search_batch(questions, histories, _FOUND), strict=True):
                best: dict[str, tuple[int, float]] = {}
                for identity, score in hits:
                    number = numbers[identity]
                    best.setdefault(document_id(memory.passages[number]), (number, score))
                rows = list(best.values())[:_CANDIDATES]
                if not any(number in own for number, _ in rows):
                    rows.append((own[0], -np.inf))
                right = [number in own for number, _ in rows]
                if not all(right):
                    passages, scores = [texts[number] for number, _ in rows], [score for _, score in rows]
                    found.append(RankedQuestion(conversation_text(one.question, one.history), passages, scores, right))
            advance(len(part))
    return found


def draw_groups(questions: Sequence[RankedQuestion], count: int, seed: int) -> list[tuple[str, list[str]]]:
    """Draw questions, each with a right passage and then seven wrong passages. Better ranked passages are drawn more often."""
    chance = np.random.default_rng(seed)
    groups: list[tuple[str, list[str]]] = []
    for number in chance.integers(len(questions), size=count):
        one = questions[number]
        right, wrong = np.flatnonzero(one.right), np.flatnonzero(~np.array(one.right))
        shares = 1 / np.sqrt(3 + wrong)
        drawn = chance.choice(wrong, _NEGATIVES, replace=len(wrong) < _NEGATIVES, p=shares / shares.sum())
        groups.append((one.text, [one.passages[place] for place in (chance.choice(right), *drawn)]))
    return groups
