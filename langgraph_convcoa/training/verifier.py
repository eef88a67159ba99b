"""Training of a verifier: a copy of the encoder that reads a claim with its premise, trained by transformers' `Trainer`."""

from __future__ import annotations

import json
import random
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import IterableDataset
from transformers import AutoModel, Trainer, TrainingArguments

from langgraph_convcoa.datasets.labelled_claims import LabelledClaim
from langgraph_convcoa.errors import InputError, RetrievalError, check_least, first_line
from langgraph_convcoa.retrieval.cross_encoder import save_text_pairs, token_types
from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER
from langgraph_convcoa.retrieval.encoders.bert import location_of
from langgraph_convcoa.retrieval.encoders.sentence_transformer import quiet
from langgraph_convcoa.retrieval.query.query_encoder import Differences
from langgraph_convcoa.training.trainer import Unfinished, check_packages, run
from langgraph_convcoa.verification.answer_check import judge
from langgraph_convcoa.verification.premise import Evidence
from langgraph_convcoa.verification.trained import TrainedVerifier

MODEL = "verifier.safetensors"
_CHECKPOINTS, _SETTINGS = "checkpoints", "training.json"
_TOKENS, _POOL, _SMOOTHING = 192, 16, 0.02
_FROZEN = ("embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight")
_HELD_OUT, _ACCEPTED = 12, 0.92
"""One passage in 12 is held out. T is the highest threshold that accepts the share 0.92 of the held-out true claims."""


class Pair(NamedTuple):
    """A claim, its premise, whether the premise supports it (1.0 or 0.0), and the kind of claim."""

    claim: str
    premise: str
    label: float
    kind: str = ""


@dataclass(frozen=True)
class VerifierSettings:
    """Settings of a verifier's training. If a setting has two shares, the second holds from half-way on."""

    steps: int = 2_000  # Batches.
    batch_size: int = 32  # Pairs in a batch.
    learning_rate: float = 1e-4  # Peak learning rate; it grows for the first steps and then falls linearly to 0.
    written: tuple[float, float] = (0.5, 0.6)  # Share of pairs from labelled claims, if `made` has other pairs.
    others: tuple[float, float] = (0.05, 0.04)  # Share of true claims that get another claim's premise and the label false.
    premise_words: int = 60  # Longest premise, in words; shorter premises train faster.
    # Half of the pairs have this many passages of other claims in their evidence: a search finds wrong passages too.
    distractors: int = 3
    dropout: float = 0.05  # Dropout of all layers.
    seed: int = 0  # Seed of weights, batches and drawn pairs.
    save_every: int = 100  # Steps between checkpoints.


class TextPairNetwork(nn.Module):
    """A BERT and a linear layer over its [CLS] and mean vectors. The embeddings of words and positions are frozen."""

    def __init__(self, base: str, dropout: float) -> None:
        super().__init__()
        place = location_of(base)
        try:
            with quiet():
                self.bert = AutoModel.from_pretrained(base if place is None else str(place), add_pooling_layer=False)
        # The hub, the file formats and torch raise errors of many types; all mean that there is no model.
        except Exception as error:
            raise RetrievalError(f"The base model {base!r} cannot be loaded ({first_line(error)}); name another.") from error
        self.head = nn.Linear(2 * self.bert.config.hidden_size, 1)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)
        self.shared = nn.Parameter(torch.zeros(2, self.bert.config.hidden_size))
        self.layers: list[int] | None = None
        for name, parameter in self.bert.named_parameters():
            parameter.requires_grad_(name not in _FROZEN)
        for module in self.modules():
            if isinstance(module, nn.Dropout):
                module.p = dropout

    def keep(self, layers: Sequence[int]) -> None:
        """Keep only these layers, numbered from 0. Raises InputError if there is no such layer."""
        known = self.bert.encoder.layer
        if not layers or not all(0 <= number < len(known) for number in layers):
            raise InputError(f"layers must be numbers from 0 to {len(known) - 1}, not {list(layers)}.")
        self.bert.encoder.layer = nn.ModuleList(known[number] for number in layers)
        self.layers = list(layers)

    def load(self, path: Path, base: str) -> None:
        """Take the weights and layers of a trained verifier or reranker. Raises RetrievalError if they do not fit."""
        try:
            with safe_open(path, framework="numpy") as stored:
                tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 - no mapping
                base_hash, settings = stored.metadata()["base_hash"], json.loads(stored.metadata()["settings"])
            head, bias, shared = (tensors.pop(name) for name in ("head.weight", "head.bias", "shared.weight"))
        except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
            raise RetrievalError(f"{path} holds no verifier or reranker to start from ({first_line(error)}).") from error
        if "layers" in settings:
            self.keep(settings["layers"])
        own = {name: parameter.data for name, parameter in self.bert.named_parameters() if name not in _FROZEN}
        Differences(tensors, base_hash).add_to(own, base)
        with torch.no_grad():
            self.head.weight.copy_(torch.from_numpy(head)[None])
            self.head.bias.copy_(torch.from_numpy(bias))
            self.shared.copy_(torch.from_numpy(shared))

    def save(self, path: Path, kind: str, number: float, base: str) -> None:
        """Write the file that `TextPairs` reads; `kind` and `number` are those of `save_text_pairs`."""
        weights = {name: one.cpu().numpy() for name, one in self.bert.state_dict().items()}
        head, shared = (one.detach().cpu().numpy() for one in (self.head.weight[0], self.shared))
        save_text_pairs(path, kind, number, weights, head, float(self.head.bias.detach()[0]), shared, base, self.layers)

    def logits(self, ids: Tensor, types: Tensor, mask: Tensor) -> Tensor:
        """The logit of each pair, (n,), from tokens, types (`token_types`) and mask, (n, l)."""
        words = self.bert.embeddings.word_embeddings(ids)
        # Words that both texts have get type 2 instead of 0, and 3 instead of 1.
        marked = words + self.shared[types % 2] * (types >= 2)[..., None]
        state = self.bert(inputs_embeds=marked, token_type_ids=types % 2, attention_mask=mask).last_hidden_state
        weights = mask[..., None].to(state.dtype)
        mean = (state * weights).sum(1) / weights.sum(1)
        found: Tensor = self.head(torch.cat([state[:, 0], mean], 1)).squeeze(-1)
        return found

    def forward(self, ids: Tensor, types: Tensor, mask: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.logits(ids, types, mask)
        smooth = labels * (1 - 2 * _SMOOTHING) + _SMOOTHING
        return {"loss": nn.functional.binary_cross_entropy_with_logits(logits, smooth)}


class DrawnPairs(IterableDataset[dict[str, Any]]):
    """Tokenised pairs in the order of the training, drawn by the seed. The pairs of a batch have similar lengths."""

    def __init__(self, written: Sequence[Pair], made: Sequence[Pair], tokenizer: Any, settings: VerifierSettings) -> None:
        self._written, self._made, self._tokenizer, self._settings = written, made, tokenizer, settings

    def __iter__(self) -> Iterator[dict[str, Any]]:
        size = self._settings.batch_size
        for step in range(0, self._settings.steps, _POOL):
            chance = random.Random(f"{self._settings.seed} {step}")  # noqa: S311 -- not for secrets
            pool = [self._drawn(step / self._settings.steps, chance) for _ in range(_POOL * size)]
            encoded = self._tokenizer.encode_batch([(pair.claim, pair.premise) for pair in pool])
            rows = sorted(zip(encoded, pool, strict=True), key=lambda row: len(row[0].ids))
            batches = [rows[start : start + size] for start in range(0, len(rows), size)]
            chance.shuffle(batches)
            for one, pair in (row for batch in batches for row in batch):
                yield {"ids": one.ids, "types": token_types(one, pair.claim, pair.premise), "label": pair.label}

    def _drawn(self, done: float, chance: random.Random) -> Pair:
        written, others = (
            first + (last - first) * min(1.0, 2 * done) for first, last in (self._settings.written, self._settings.others)
        )
        source = self._written if not self._made or chance.random() < written else self._made
        pair = chance.choice(source)
        if pair.label and chance.random() < others:
            return Pair(pair.claim, chance.choice(source).premise, 0.0)
        return pair


def claim_pairs(claims: Sequence[LabelledClaim], words: int) -> list[Pair]:
    """Claims with their premises, each of at most `words` words.

    Example:
        >>> claim_pairs([LabelledClaim("It rained.", (("", "Rain fell."),), True, "paraphrase")], 50)
        [Pair(claim='It rained.', premise='Rain fell.', label=1.0, kind='paraphrase')]
    """
    evidence = {claim.evidence: Evidence(claim.evidence) for claim in claims}
    return [
        Pair(claim.claim, evidence[claim.evidence].premise(claim.claim, words).text, float(claim.supported), claim.kind)
        for claim in claims
    ]


def with_distractors(claims: Sequence[LabelledClaim], count: int, seed: int = 0) -> list[LabelledClaim]:
    """Add `count` passages of other claims to each evidence. Equal evidence gets equal passages. [] if `count` is 0.

    Example:
        >>> claims = [LabelledClaim(f"{day} was wet.", (("", f"It rained on {day}."),), True) for day in ("Monday", "Friday")]
        >>> sorted(text for _, text in with_distractors(claims, 1)[0].evidence)
        ['It rained on Friday.', 'It rained on Monday.']
    """
    if not count:
        return []
    chance = random.Random(seed)  # noqa: S311 -- not for secrets
    own = dict.fromkeys(claim.evidence for claim in claims)
    passages = list(dict.fromkeys(passage for evidence in own for passage in evidence))
    mixed = {}
    for evidence in own:
        others = [one for one in chance.sample(passages, min(len(passages), count + len(evidence))) if one not in evidence]
        together = [*evidence, *others[:count]]
        chance.shuffle(together)
        mixed[evidence] = tuple(together)
    return [replace(claim, evidence=mixed[claim.evidence]) for claim in claims]


def train_verifier(
    claims: Sequence[LabelledClaim],
    out: str | Path,
    *,
    made: Sequence[Pair] = (),
    base: str = DEFAULT_ENCODER,
    start: str | Path | None = None,
    settings: VerifierSettings | None = None,
    resume: bool = False,
    device: str | None = None,
    sources: Sequence[str] = (),
    command: str = "",
    progress: bool = False,
) -> TrainedVerifier:
    """Train a verifier and save it as `out/verifier.safetensors` with a model card.

    One passage in twelve is held out to choose the threshold T. The same seed gives the same pairs. `resume` continues a
    stopped training from its last checkpoint. `made` are further pairs, such as those that `experiments.verifier` makes from
    passages. `start` is a verifier of the encoder `base` to train further. `sources` and `command` are for the card.

    Raises:
        InputError: There are no true or no false claims, a setting is out of range, the extra `train` is missing, or the
            folder holds another training or other files.
        RetrievalError: The base model or the verifier to start from cannot be loaded.
    """
    chosen, folder = settings or VerifierSettings(), Path(out)
    learned = [claim for claim in claims if not _is_held_out(claim)]
    held_out = [claim for claim in claims if _is_held_out(claim)] or learned
    if len({claim.supported for claim in learned}) < 2:
        raise InputError("A verifier learns from true and from false claims; the data has only one of them.")
    check_least(chosen, steps=1, batch_size=1, save_every=1, premise_words=1, distractors=0)
    if chosen.learning_rate <= 0:
        raise InputError(f"learning_rate must be above 0, not {chosen.learning_rate}.")
    check_packages()
    started = {"base": base, "start": str(start or ""), "claims": len(claims), "made": len(made), **asdict(chosen)}
    started = json.loads(json.dumps(started))
    checkpoint = _begin(folder, started, resume)
    network = TextPairNetwork(base, chosen.dropout)
    if start is not None:
        network.load(Path(start), base)
    found = [*learned, *with_distractors(learned, chosen.distractors, chosen.seed)]
    pairs = DrawnPairs(claim_pairs(found, chosen.premise_words), made, pair_tokenizer(base), chosen)
    with quiet():
        arguments = TrainingArguments(
            output_dir=str(folder / _CHECKPOINTS),
            max_steps=chosen.steps,
            per_device_train_batch_size=chosen.batch_size,
            learning_rate=chosen.learning_rate,
            weight_decay=0.01,
            warmup_steps=min(60, max(1, chosen.steps // 20)),
            seed=chosen.seed,
            save_steps=chosen.save_every,
            save_total_limit=1,
            logging_steps=50,
            report_to=[],
            use_cpu=device == "cpu" or not torch.cuda.is_available(),
            remove_unused_columns=False,
            dataloader_pin_memory=False,
        )
        run(Trainer(network, arguments, padded, pairs), checkpoint, progress)
    verifier = _export(
        network, folder / MODEL, base, [*held_out, *with_distractors(held_out, chosen.distractors, chosen.seed)]
    )
    (folder / "README.md").write_text(_card(started, verifier, claims, sources, command), encoding="utf-8")
    return verifier


def _is_held_out(claim: LabelledClaim) -> bool:
    """True for one passage in twelve, by a hash of its text: all claims of a passage are on the same side."""
    return zlib.crc32(claim.evidence[0][1].encode()) % _HELD_OUT == 0 if claim.evidence else False


def _begin(folder: Path, started: dict[str, Any], resume: bool) -> str | None:
    """Write the settings of the training. Returns the checkpoint to resume from, or None."""
    path = folder / _SETTINGS
    if path.is_file():
        if not resume:
            raise InputError(f"{folder} holds a training already: resume it (--resume), or name another folder.")
        known = json.loads(path.read_text(encoding="utf-8"))
        if changed := sorted(key for key in started if key != "steps" and known.get(key) != started[key]):
            raise InputError(f"The training in {folder} was begun with another {changed[0]}: {known.get(changed[0])!r}.")
    elif folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} holds other files; name an empty or a new folder.")
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(started, indent=2) + "\n", encoding="utf-8")
    saved = Unfinished(folder / _CHECKPOINTS).checkpoint
    return None if saved is None else str(saved)


def pair_tokenizer(base: str) -> Any:
    """The tokenizer of an encoder, for pairs of texts: it cuts the longer text, and does not pad."""
    from tokenizers import Tokenizer

    place = location_of(base)
    tokenizer = Tokenizer.from_pretrained(base) if place is None else Tokenizer.from_file(str(place / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(_TOKENS, strategy="longest_first")
    return tokenizer


def padded(rows: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
    """A batch of tokenised pairs as tensors."""
    ids, types = (pad_sequence([torch.tensor(row[name]) for row in rows], batch_first=True) for name in ("ids", "types"))
    sizes = torch.tensor([len(row["ids"]) for row in rows])
    mask = (torch.arange(ids.shape[1]) < sizes[:, None]).long()
    return {"ids": ids, "types": types, "mask": mask, "labels": torch.tensor([row["label"] for row in rows])}


def _export(network: TextPairNetwork, path: Path, base: str, held_out: Sequence[LabelledClaim]) -> TrainedVerifier:
    """Write the weights in the form that `TrainedVerifier` reads, with T chosen on the held-out claims."""
    network.save(path, "verifier", 0.5, base)
    # T = 1 refuses every claim as a whole, so that long claims are also judged by their clauses, as in a graph.
    judged = TrainedVerifier(path, threshold=1.0)
    true = [claim for claim in held_out if claim.supported]
    scores = sorted(judge([claim.claim], Evidence(claim.evidence), judged)[0].score for claim in true)
    lowest = scores[int((1 - _ACCEPTED) * len(scores))] if scores else 0.5
    threshold = round(min(0.95, max(0.05, lowest)), 2)
    network.save(path, "verifier", threshold, base)
    return TrainedVerifier(path)


def _card(
    started: dict[str, Any], verifier: TrainedVerifier, claims: Sequence[LabelledClaim], sources: Sequence[str], command: str
) -> str:
    kinds = ", ".join(f"{kind} {count}" for kind, count in Counter(one.kind or "unnamed" for one in claims).most_common())
    settings = ", ".join(f"{key} {value}" for key, value in started.items() if key not in ("base", "start", "claims", "made"))
    true = sum(one.supported for one in claims)
    made_by = f"- Command: `{command}`\n" if command else ""
    return f"""# A verifier of claims

A cross-encoder: (claim, premise) to the probability that the premise supports all of the claim.

- Base: {started["base"]}; embeddings of words and positions unchanged. Start: {started["start"] or "the base"}.
- Data: {", ".join(sources) or "labelled claims"}: {true} true and {len(claims) - true} false claims ({kinds}).
- Pairs made from passages: {started["made"]}.
- Training: {settings}.
- T: {verifier.threshold}, which accepts {_ACCEPTED:.0%} of the true claims of the passages that were held out.
{made_by}- Measure it with `convcoa evaluate verification --verifiers FILE`, on claims that it was not trained on.
"""
