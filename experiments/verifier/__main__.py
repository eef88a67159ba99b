"""Train a small verifier: `python -m experiments.verifier SQUAD --out FOLDER`."""

from __future__ import annotations

import argparse
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from experiments.verifier.synthetic import from_questions, from_sentences
from langgraph_convcoa.datasets.labelled_claims import packaged_claims
from langgraph_convcoa.datasets.read import load_dataset
from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER
from langgraph_convcoa.retrieval.encoders.loading import location_of, quiet
from langgraph_convcoa.verification.premise import Evidence
from langgraph_convcoa.verification.trained import save_verifier

_TOKENS, _PREMISE_WORDS = 192, 45


class Pair(NamedTuple):
    """A claim, its premise, and whether the premise supports it."""

    claim: str
    premise: str
    label: float


@dataclass(frozen=True)
class Settings:
    """Settings of the training; the learning rate falls linearly over `seconds` of wall-clock time."""

    seconds: float = 3900.0
    batch_size: int = 32
    learning_rate: float = 1.5e-4
    warmup_steps: int = 60
    dropout: float = 0.05
    seed: int = 0
    save_every: int = 150


class Network(nn.Module):
    """A BERT without its pooler, and a linear layer over [CLS] and the mean; embeddings of words and positions stay."""

    def __init__(self, base: str, dropout: float) -> None:
        super().__init__()
        from transformers import AutoModel

        with quiet():
            self.bert = AutoModel.from_pretrained(base, add_pooling_layer=False)
        self.head = nn.Linear(2 * self.bert.config.hidden_size, 1)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)
        for name, parameter in self.bert.embeddings.named_parameters():
            parameter.requires_grad_("word" not in name and "position" not in name)
        for module in self.modules():
            if isinstance(module, nn.Dropout):
                module.p = dropout

    def forward(self, ids: Tensor, types: Tensor, mask: Tensor) -> Tensor:
        state: Tensor = self.bert(input_ids=ids, token_type_ids=types, attention_mask=mask).last_hidden_state
        weights = mask[..., None].to(state.dtype)
        mean = (state * weights).sum(1) / weights.sum(1)
        logits: Tensor = self.head(torch.cat([state[:, 0], mean], 1)).squeeze(-1)
        return logits


def claim_pairs() -> tuple[list[Pair], list[Pair]]:
    """The package's training claims: to learn from, and of a tenth of the passages to watch."""
    learned: list[Pair] = []
    watched: list[Pair] = []
    for claim in packaged_claims("train"):
        pair = Pair(claim.claim, Evidence(claim.evidence).premise(claim.claim, _PREMISE_WORDS).text, float(claim.supported))
        title = claim.evidence[0][0]
        (watched if sum(map(ord, title)) % 12 == 0 else learned).append(pair)
    return learned, watched


def question_pairs(folder: Path, seed: int = 0) -> list[Pair]:
    """Pairs made of the training questions of a folder of queries and passages, such as SQuAD."""
    chance = random.Random(seed)
    dataset = load_dataset(folder, split="train")
    passages = {str(one.id): (str(one.metadata.get("title") or ""), one.page_content) for one in dataset.corpus}
    asked: dict[str, list[tuple[str, str, bool]]] = defaultdict(list)
    for query in dataset.queries:
        if query.gold and query.gold[0] in passages:
            asked[query.gold[0]].append((query.question, query.answer or "", bool(query.answer)))
    made: list[Pair] = []
    for name, questions in asked.items():
        for claim, premise, label, _ in (
            *from_questions(passages[name], questions, chance),
            *from_sentences(passages[name], chance),
        ):
            if premise and len(claim) < 400:
                made.append(Pair(claim, premise, float(label)))
    return made


def train(
    learned: Sequence[Pair], made: Sequence[Pair], out: Path, settings: Settings, base: str = DEFAULT_ENCODER
) -> Iterator[tuple[int, float]]:
    """Train until the time is over, yielding steps and losses; the weights are in `out/net.pt` from time to time.

    At first most pairs are easy: made of questions, and true claims with the premise of another passage. The share of written
    claims grows to three quarters, and that of other premises falls to a twenty-fifth.
    """
    from tokenizers import Tokenizer

    folder = str(location_of(base) or base)
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    tokenizer.no_padding()
    tokenizer.enable_truncation(_TOKENS, strategy="longest_first")
    torch.manual_seed(settings.seed)
    chance = random.Random(settings.seed)
    network = Network(folder, settings.dropout).train()
    parameters = [one for one in network.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=settings.learning_rate, weight_decay=0.01)
    began, step = time.monotonic(), 0

    def done() -> float:
        return (time.monotonic() - began) / settings.seconds

    def drawn() -> Pair:
        claims = not made or chance.random() < 0.2 + 0.55 * min(1, done() / 0.5)
        source = learned if claims else made
        pair = chance.choice(source)
        if pair.label and chance.random() < max(0.04, 0.5 * (1 - done() / 0.4)):
            return Pair(pair.claim, chance.choice(source).premise, 0.0)
        return pair

    out.mkdir(parents=True, exist_ok=True)
    while done() < 1:
        pool = [drawn() for _ in range(16 * settings.batch_size)]
        encoded = list(zip(tokenizer.encode_batch([(one.claim, one.premise) for one in pool]), pool, strict=True))
        # Pairs of about one length form a batch: little padding.
        encoded.sort(key=lambda one: len(one[0].ids))
        batches = [encoded[n : n + settings.batch_size] for n in range(0, len(encoded), settings.batch_size)]
        chance.shuffle(batches)
        for batch in batches:
            rate = min((step + 1) / settings.warmup_steps, 1) * max(0.02, 1 - done())
            for group in optimizer.param_groups:
                group["lr"] = settings.learning_rate * rate
            labels = torch.tensor([pair.label for _, pair in batch]) * 0.96 + 0.02
            loss = nn.functional.binary_cross_entropy_with_logits(network(*_padded([one for one, _ in batch])), labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            step += 1
            if step % settings.save_every == 0:
                _save(network, out)
            yield step, loss.item()
            if done() >= 1:
                break
    _save(network, out)


def _padded(encodings: Sequence[Any]) -> tuple[Tensor, Tensor, Tensor]:
    longest = max(len(one.ids) for one in encodings)
    ids, types, mask = torch.zeros(3, len(encodings), longest, dtype=torch.long)
    for row, one in enumerate(encodings):
        size = len(one.ids)
        ids[row, :size], types[row, :size], mask[row, :size] = torch.tensor(one.ids), torch.tensor(one.type_ids), 1
    return ids, types, mask


def _save(network: Network, out: Path) -> None:
    torch.save(network.state_dict(), out / "net.tmp")
    (out / "net.tmp").replace(out / "net.pt")


def export(out: Path, threshold: float, base: str = DEFAULT_ENCODER) -> Path:
    """Write the trained weights as `TrainedVerifier` reads them."""
    state = torch.load(out / "net.pt", weights_only=True)
    weights = {name.removeprefix("bert."): one.numpy() for name, one in state.items() if name.startswith("bert.")}
    path = out / "verifier.safetensors"
    head = np.asarray(state["head.weight"][0].numpy(), dtype=np.float32)
    save_verifier(path, weights, head, float(state["head.bias"][0]), threshold, base)
    return path


def main() -> None:
    """Train and write `verifier.safetensors`."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m experiments.verifier")
    parser.add_argument("data", type=Path, help="folder of SQuAD: queries.jsonl.gz and corpus.jsonl.gz")
    parser.add_argument("--out", type=Path, required=True, help="folder of the weights")
    parser.add_argument("--seconds", type=float, default=Settings.seconds, help="how long to train (default: 3900)")
    parser.add_argument("--threshold", type=float, default=0.25, help="T, kept in the file (default: 0.25)")
    given = parser.parse_args()
    learned, _ = claim_pairs()
    made = question_pairs(given.data)
    print(f"{len(learned)} pairs of written claims, {len(made)} made of questions and sentences")
    for step, loss in train(learned, made, given.out, Settings(seconds=given.seconds)):
        if step % 50 == 0:
            print(f"step {step}: loss {loss:.3f}", flush=True)
    print(export(given.out, given.threshold))


if __name__ == "__main__":
    main()
