"""Training of a verifier: a cross-encoder that reads a premise and a claim."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from langgraph_convcoa.datasets.labelled_claims import LabelledClaim
from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.files import replacing_folder
from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER
from langgraph_convcoa.retrieval.encoders.loading import location_of, quiet
from langgraph_convcoa.verification.premise import Evidence
from langgraph_convcoa.verification.verifier import CrossEncoderVerifier

_CHECKPOINTS = "checkpoints"
_SETTINGS = "training.json"
_TOKENS = 192


@dataclass(frozen=True)
class VerifierSettings:
    """Settings of a verifier's training.

    Attributes:
        steps: Batches.
        batch_size: Pairs of premise and claim in a batch.
        learning_rate: The highest; it grows for a twentieth of the steps and then falls linearly to 0.
        others: Pairs of a true claim with the premise of another passage, which are false, as a share of the true claims.
        premise_words: Longest premise, in words; shorter ones train faster.
        seed: Of weights, batches and drawn pairs.
        save_every: Steps between checkpoints.
    """

    steps: int = 4_000
    batch_size: int = 32
    learning_rate: float = 1e-4
    others: float = 0.25
    premise_words: int = 60
    seed: int = 0
    save_every: int = 200


def training_rows(claims: Sequence[LabelledClaim], settings: VerifierSettings) -> list[dict[str, Any]]:
    """Rows of premise, claim and label (1.0 or 0.0), in the columns that `CrossEncoderTrainer` reads.

    Example:
        >>> claim = LabelledClaim("It rained.", (("", "Rain fell."),), True)
        >>> training_rows([claim], VerifierSettings(others=0))
        [{'premise': 'Rain fell.', 'claim': 'It rained.', 'label': 1.0}]
    """
    chance = random.Random(settings.seed)  # noqa: S311 -- not for secrets
    premises = [Evidence(one.evidence).premise(one.claim, settings.premise_words).text for one in claims]
    rows = [
        {"premise": premise, "claim": one.claim, "label": float(one.supported)}
        for one, premise in zip(claims, premises, strict=True)
    ]
    true = [place for place, one in enumerate(claims) if one.supported]
    for place in chance.sample(true, round(settings.others * len(true))):
        other = chance.randrange(len(claims))
        if claims[other].evidence != claims[place].evidence:
            rows.append({"premise": premises[other], "claim": claims[place].claim, "label": 0.0})
    return rows


def train_verifier(
    claims: Sequence[LabelledClaim],
    out: str | Path,
    *,
    base: str = DEFAULT_ENCODER,
    settings: VerifierSettings | None = None,
    resume: bool = False,
    device: str | None = None,
    sources: Sequence[str] = (),
    command: str = "",
    progress: bool = False,
) -> CrossEncoderVerifier:
    """Train a sentence-transformers `CrossEncoder` on labelled claims and save it to a folder with a model card.

    Word embeddings stay as they are. Checkpoints lie in the folder until the model is saved, so that a stopped training is
    resumed with `resume`.

    Raises:
        InputError: There are no true or no false claims, a setting is out of range, the extra `train` is missing, or the
            folder holds another training or other files.
        RetrievalError: The base model cannot be loaded.
    """
    chosen, folder = settings or VerifierSettings(), Path(out)
    if len({one.supported for one in claims}) < 2:
        raise InputError("A verifier learns from true and from false claims; the data has only one of them.")
    if min(chosen.steps, chosen.batch_size, chosen.save_every, chosen.premise_words) < 1 or chosen.learning_rate <= 0:
        raise InputError("Steps, batch size, words and learning rate must be above 0.")
    if any(find_spec(name) is None for name in ("datasets", "accelerate")):
        raise InputError('Training a verifier needs the extra `train`: pip install "langgraph-convcoa[train]".')
    started = {"base": base, "claims": len(claims), **asdict(chosen)}
    checkpoint = _begin(folder, started, resume)
    with quiet():
        model = _trained(_model(base, device), training_rows(claims, chosen), folder, chosen, checkpoint, progress)
        with replacing_folder(folder / "model") as partial:
            model.save_pretrained(str(partial))
            (partial / "README.md").write_text(_card(started, claims, sources, command), encoding="utf-8")
    return CrossEncoderVerifier(str(folder / "model"), device=device)


def _begin(folder: Path, started: dict[str, Any], resume: bool) -> str | None:
    """The checkpoint to resume from, if any; writes the settings of a new training."""
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
    saved = sorted((folder / _CHECKPOINTS).glob("checkpoint-*"), key=lambda one: int(one.name.rpartition("-")[2]))
    return str(saved[-1]) if saved else None


def _model(base: str, device: str | None) -> Any:
    from sentence_transformers import CrossEncoder

    place = location_of(base)
    try:
        model = CrossEncoder(base if place is None else str(place), num_labels=1, max_length=_TOKENS, device=device)
    # The hub, the file formats and torch raise errors of many types; all mean that there is no model.
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise RetrievalError(f"The base model {base!r} cannot be loaded ({reason}); name another.") from error
    for name, parameter in model.named_parameters():
        if "word_embeddings" in name:
            parameter.requires_grad_(False)
    return model


def _trained(
    model: Any, rows: list[dict[str, Any]], folder: Path, settings: VerifierSettings, checkpoint: str | None, progress: bool
) -> Any:
    from datasets import Dataset
    from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

    arguments = CrossEncoderTrainingArguments(
        output_dir=str(folder / _CHECKPOINTS),
        max_steps=settings.steps,
        per_device_train_batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        warmup_steps=max(1, settings.steps // 20),
        seed=settings.seed,
        save_steps=settings.save_every,
        save_total_limit=1,
        logging_steps=50,
        report_to=[],
        disable_tqdm=not progress,
        use_cpu=str(model.device) == "cpu",
    )
    trainer = CrossEncoderTrainer(
        model=model, args=arguments, train_dataset=Dataset.from_list(rows), loss=BinaryCrossEntropyLoss(model)
    )
    trainer.train(resume_from_checkpoint=checkpoint)
    return model


def _card(started: dict[str, Any], claims: Sequence[LabelledClaim], sources: Sequence[str], command: str) -> str:
    kinds = Counter(one.kind or "unnamed" for one in claims)
    lines = [
        "# A verifier of claims",
        "",
        "A cross-encoder: (premise, claim) to the probability that the premise supports all of the claim.",
        "",
        f"- Base: {started['base']}; word embeddings unchanged.",
        f"- Data: {', '.join(sources) or 'labelled claims'}: {sum(one.supported for one in claims)} true and "
        f"{sum(not one.supported for one in claims)} false claims "
        f"({', '.join(f'{kind} {count}' for kind, count in kinds.most_common())}).",
        f"- Training: {', '.join(f'{key} {value}' for key, value in started.items() if key not in ('base', 'claims'))}.",
        *([f"- Command: `{command}`"] if command else []),
        "- Measure it with `convcoa evaluate verification --verifiers FOLDER`, on claims that it was not trained on.",
        "",
    ]
    return "\n".join(lines)
