"""Train a small verifier: `python -m experiments.verifier SQUAD --out FOLDER`."""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor, nn

from experiments.verifier.synthetic import from_article, from_questions, from_sentences, with_pronoun
from langgraph_convcoa.datasets.labelled_claims import LabelledClaim, packaged_claims, read_claims
from langgraph_convcoa.datasets.read import load_dataset
from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER
from langgraph_convcoa.retrieval.encoders.loading import location_of, quiet
from langgraph_convcoa.retrieval.query.query_encoder import Differences
from langgraph_convcoa.verification.premise import Evidence
from langgraph_convcoa.verification.trained import save_verifier

_TOKENS, _PREMISE_WORDS = 192, 50
_PRONOUNS, _OVER = 0.25, 0.15
"""Share of claims that get a pronoun, and of pairs made from the passages of the written claims."""
_POOL = 16
"""Batches that are drawn at once."""


_ABOUT_THE_SUBJECT = frozenset(
    {"active-swap", "passive-swap", "names-swap", "name", "subject", "half", "qa", "qa-other", "qa-absent"}
    | {"roles", "names", "attribute", "order", "near", "common", "chat", "answer"}
)
"""Kinds of false pairs that may become true when a pronoun stands for their subject."""


class Pair(NamedTuple):
    """A claim, its premise, whether the premise supports it, and its kind."""

    claim: str
    premise: str
    label: float
    kind: str = ""


@dataclass(frozen=True)
class Settings:
    """Settings of the training: the learning rate grows over `warmup_steps` and falls linearly to 0 over `steps`.

    `written`: the share of written claims among the pairs, at the start and from half of the steps on.
    `others`: the share of true claims that get the premise of another passage, likewise.
    """

    steps: int = 4_000
    batch_size: int = 32
    learning_rate: float = 1.5e-4
    warmup_steps: int = 60
    dropout: float = 0.05
    seed: int = 0
    save_every: int = 100
    written: tuple[float, float] = (0.2, 0.75)
    others: tuple[float, float] = (0.5, 0.04)


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

    def load(self, path: Path) -> None:
        """Take the weights of a `verifier.safetensors`."""
        with safe_open(path, framework="numpy") as stored:
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 - no mapping
            base_hash = stored.metadata()["base_hash"]
        head, bias = tensors.pop("head.weight"), tensors.pop("head.bias")
        # The embeddings of words and positions stay as they are.
        weights = {
            name: parameter.data
            for name, parameter in self.bert.named_parameters()
            if name not in ("embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight")
        }
        Differences(tensors, base_hash).add_to(weights, "the encoder")
        with torch.no_grad():
            self.head.weight.copy_(torch.from_numpy(head)[None])
            self.head.bias.copy_(torch.from_numpy(bias))

    def forward(self, ids: Tensor, types: Tensor, mask: Tensor) -> Tensor:
        state: Tensor = self.bert(input_ids=ids, token_type_ids=types, attention_mask=mask).last_hidden_state
        weights = mask[..., None].to(state.dtype)
        mean = (state * weights).sum(1) / weights.sum(1)
        logits: Tensor = self.head(torch.cat([state[:, 0], mean], 1)).squeeze(-1)
        return logits


def claim_pairs(claims: Sequence[LabelledClaim]) -> list[Pair]:
    """Pairs of written claims and their premises."""
    return [
        Pair(one.claim, Evidence(one.evidence).premise(one.claim, _PREMISE_WORDS).text, float(one.supported), one.kind)
        for one in claims
    ]


def passage_pairs(claims: Sequence[LabelledClaim], seed: int = 0) -> list[Pair]:
    """Pairs made from the sentences of the passages that the claims were written over."""
    chance = random.Random(seed)
    passages = list(dict.fromkeys(claim.evidence[0] for claim in claims))
    made: list[Pair] = []
    for passage in passages:
        others = [text for _, text in chance.sample(passages, 2) if text != passage[1]]
        for _ in range(2):
            found = (*from_sentences(passage, chance), *from_article(passage, others, chance))
            made += [Pair(claim, premise, float(label), kind) for claim, premise, label, kind in found if premise]
    return made


def made_pairs(folder: Path, seed: int = 0) -> list[Pair]:
    """Pairs made of the training questions and the passages of a folder, such as SQuAD."""
    chance = random.Random(seed)
    dataset = load_dataset(folder, split="train")
    passages = {str(one.id): (str(one.metadata.get("title") or ""), one.page_content) for one in dataset.corpus}
    asked: dict[str, list[tuple[str, str, bool]]] = defaultdict(list)
    for query in dataset.queries:
        if query.gold and query.gold[0] in passages:
            asked[query.gold[0]].append((query.question, query.answer or "", bool(query.answer)))
    articles: dict[str, list[str]] = defaultdict(list)
    for name in asked:
        articles[passages[name][0]].append(passages[name][1])
    made: list[Pair] = []
    for name, questions in asked.items():
        title, text = passages[name]
        others = [one for one in articles[title] if one != text]
        for claim, premise, label, kind in (
            *from_questions(passages[name], questions, chance),
            *from_sentences(passages[name], chance),
            *from_article(passages[name], chance.sample(others, min(2, len(others))), chance),
        ):
            if premise and len(claim) < 400:
                made.append(Pair(claim, premise, float(label), kind))
    return made


def train(
    learned: Sequence[Pair],
    over: Sequence[Pair],
    made: Sequence[Pair],
    out: Path,
    settings: Settings,
    base: str = DEFAULT_ENCODER,
    start: Path | None = None,
) -> Iterator[tuple[int, float]]:
    """Train, yielding steps and losses; a training that was stopped goes on from its last checkpoint, `out/checkpoint.pt`.

    Args:
        learned: Pairs of written claims.
        over: Pairs made from the passages of the written claims.
        made: Pairs made from passages.
        out: Folder of the checkpoint.
        settings: What the training depends on.
        base: The encoder whose weights are the first.
        start: A verifier to go on from, in place of the encoder.
    """
    from tokenizers import Tokenizer

    folder = str(location_of(base) or base)
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    tokenizer.no_padding()
    tokenizer.enable_truncation(_TOKENS, strategy="longest_first")
    torch.manual_seed(settings.seed)
    network = Network(folder, settings.dropout).train()
    if start is not None:
        network.load(start)
    parameters = [one for one in network.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=settings.learning_rate, weight_decay=0.01)
    out.mkdir(parents=True, exist_ok=True)
    step = 0
    if (out / "checkpoint.pt").is_file():
        saved = torch.load(out / "checkpoint.pt", weights_only=True)
        network.load_state_dict(saved["network"])
        optimizer.load_state_dict(saved["optimizer"])
        step = int(saved["step"])
    while step < settings.steps:
        chance = random.Random(f"{settings.seed} {step}")
        for batch in _batches(learned, over, made, tokenizer, settings, step / settings.steps, chance):
            rate = min((step + 1) / settings.warmup_steps, 1) * max(0.01, 1 - step / settings.steps)
            for group in optimizer.param_groups:
                group["lr"] = settings.learning_rate * rate
            labels = torch.tensor([pair.label for _, pair in batch]) * 0.96 + 0.02
            loss = nn.functional.binary_cross_entropy_with_logits(network(*_padded([one for one, _ in batch])), labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            step += 1
            yield step, loss.item()
        if step % settings.save_every < _POOL or step >= settings.steps:
            state = {"network": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, out / "checkpoint.tmp")
            (out / "checkpoint.tmp").replace(out / "checkpoint.pt")


def _batches(
    learned: Sequence[Pair],
    over: Sequence[Pair],
    made: Sequence[Pair],
    tokenizer: Any,
    settings: Settings,
    done: float,
    chance: random.Random,
) -> list[list[tuple[Any, Pair]]]:
    """Batches of pairs of about one length, which need little padding."""
    grown = min(1.0, 2 * done)
    written, others = (first + (last - first) * grown for first, last in (settings.written, settings.others))
    pool = []
    for _ in range(_POOL * settings.batch_size):
        place = chance.random()
        source = learned if place < written else over if place < written + _OVER else made
        pair = chance.choice(source)
        if pair.label and chance.random() < others:
            pair = Pair(pair.claim, chance.choice(source).premise, 0.0)
        elif (pair.label or pair.kind not in _ABOUT_THE_SUBJECT) and chance.random() < _PRONOUNS:
            pair = pair._replace(claim=with_pronoun(pair.claim, pair.premise, chance))
        pool.append(pair)
    encoded = list(zip(tokenizer.encode_batch([(one.claim, one.premise) for one in pool]), pool, strict=True))
    encoded.sort(key=lambda one: len(one[0].ids))
    batches = [encoded[n : n + settings.batch_size] for n in range(0, len(encoded), settings.batch_size)]
    chance.shuffle(batches)
    return batches


def _padded(encodings: Sequence[Any]) -> tuple[Tensor, Tensor, Tensor]:
    longest = max(len(one.ids) for one in encodings)
    ids, types, mask = torch.zeros(3, len(encodings), longest, dtype=torch.long)
    for row, one in enumerate(encodings):
        size = len(one.ids)
        ids[row, :size], types[row, :size], mask[row, :size] = torch.tensor(one.ids), torch.tensor(one.type_ids), 1
    return ids, types, mask


def export(out: Path, threshold: float, base: str = DEFAULT_ENCODER) -> Path:
    """Write the trained weights as `TrainedVerifier` reads them."""
    state = torch.load(out / "checkpoint.pt", weights_only=True)["network"]
    weights = {name.removeprefix("bert."): one.numpy() for name, one in state.items() if name.startswith("bert.")}
    path = out / "verifier.safetensors"
    head = np.asarray(state["head.weight"][0].numpy(), dtype=np.float32)
    save_verifier(path, weights, head, float(state["head.bias"][0]), threshold, base)
    return path


def main() -> None:
    """Train and write `verifier.safetensors`."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m experiments.verifier")
    parser.add_argument("data", type=Path, help="folder of SQuAD: queries.jsonl.gz and corpus.jsonl.gz")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder of the checkpoint and the weights; resumes what is there"
    )
    parser.add_argument("--steps", type=int, default=Settings.steps, help="batches of 32 pairs (default: 4000)")
    parser.add_argument("--start", type=Path, help="a verifier.safetensors to go on from")
    parser.add_argument("--claims", type=Path, nargs="*", default=[], help="more files of labelled claims")
    parser.add_argument("--learning-rate", type=float, default=Settings.learning_rate, help="the highest (default: 1.5e-4)")
    parser.add_argument("--threshold", type=float, default=0.25, help="T, kept in the file (default: 0.25)")
    given = parser.parse_args()
    claims = [*packaged_claims("train"), *(claim for path in given.claims for claim in read_claims(path))]
    learned, over, made = claim_pairs(claims), passage_pairs(claims), made_pairs(given.data)
    print(f"{len(learned)} pairs of written claims, {len(over)} from their passages, {len(made)} from SQuAD", flush=True)
    settings = Settings(steps=given.steps, learning_rate=given.learning_rate)
    if given.start:
        # A trained verifier needs no easy pairs first.
        settings = replace(settings, written=(0.5, 0.6), others=(0.05, 0.04))
    losses: list[float] = []
    for step, loss in train(learned, over, made, given.out, settings, start=given.start):
        losses.append(loss)
        if step % 50 == 0:
            print(f"step {step}: loss {sum(losses) / len(losses):.3f}", flush=True)
            losses.clear()
    print(export(given.out, given.threshold))


if __name__ == "__main__":
    main()
