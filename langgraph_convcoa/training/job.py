"""A training job: where the model goes, on which device it is trained, and the model's card."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from langgraph_convcoa.datasets.queries import Dataset
from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.files import remove_remains
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.retrieval.query.model import RetrieverModel, check_model_folder
from langgraph_convcoa.training.data import TrainingData
from langgraph_convcoa.training.loop.checkpoints import check_resumed


@dataclass(frozen=True)
class TrainingJob:
    """Where a trained model goes, and how its training is run.

    Example:
        >>> TrainingJob(out="models/mine").checkpoint.name
        'mine.training.safetensors'
    """

    out: str | Path | None = None  # Folder for the model, the state of an unfinished training beside it; None only returns it.
    resume: bool = False  # Resume an unfinished training into `out`.
    device: str | None = None  # "cpu", "cuda", ...; chosen when None.
    logs: str | Path | None = None  # Folder for TensorBoard.
    cache: PatternCache | None = None  # Where vectors are kept between runs.
    progress: Progress = False
    command: str = ""  # What the model's card names as its origin; no card is written without.

    @property
    def checkpoint(self) -> Path | None:
        """The file for the state of an unfinished training."""
        if self.out is None:
            return None
        folder = Path(self.out)
        return folder.with_name(f"{folder.resolve().name}.training.safetensors")

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of `loop.trainer.train` that the job says."""
        names = ("checkpoint", "resume", "device", "logs", "progress")
        return {name: getattr(self, name) for name in names}

    def check(self) -> None:
        """Check before anything is read or encoded: the packages, the model's place, and what unfinished training is there."""
        if self.out is None:
            return
        check_model_folder(self.out)
        for package, use in (("accelerate", "Training needs accelerate"), ("tensorboard", "The logs need TensorBoard")):
            if (package == "accelerate" or self.logs is not None) and find_spec(package) is None:
                raise RetrievalError(f'{use}: pip install "langgraph-convcoa[train]".')
        assert self.checkpoint is not None
        check_resumed(self.checkpoint, resume=self.resume)
        folder = self.checkpoint.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise RetrievalError(
                f"The model cannot be written into {folder} ({error.strerror or error}): name another folder."
            ) from error

    def finish(
        self, model: RetrieverModel, data: TrainingData | None = None, single_turn: Sequence[Dataset] = ()
    ) -> RetrieverModel:
        """The model with its card of these data, saved by one of the processes that trained it; the checkpoint is removed."""
        if self.command:
            sources = (data.sources if data is not None else {}) | {one.name: len(one.queries) for one in single_turn}
            model = replace(model, card=model_card(model, sources, self.command))
        if self.out is not None and self.checkpoint is not None:
            from accelerate import PartialState

            processes = PartialState()
            if processes.is_main_process:
                model.save(self.out)
                self.checkpoint.unlink(missing_ok=True)
                remove_remains(self.checkpoint)
            processes.wait_for_everyone()
        return model


def model_parts(model: RetrieverModel) -> dict[str, str]:
    """The trained parts of a model by their short names, with what they are.

    Example:
        >>> model_parts(RetrieverModel("some/encoder"))
        {}
    """
    parts = (
        ("state", model.state, "projections and a gate of the conversation state"),
        ("query encoder", model.query_encoder, "a query encoder, as 8-bit differences from the encoder"),
        ("encoder", model.encoder_folder, "an encoder of its own"),
    )
    return {name: description for name, part, description in parts if part is not None}


def model_card(model: RetrieverModel, sources: Mapping[str, int], command: str) -> str:
    """A card in Markdown, to which its owner adds licences and measured numbers.

    Example:
        >>> print(model_card(RetrieverModel("some/encoder"), {"talks": 12}, "convcoa train talks --out m").splitlines()[0])
        # A retriever model of langgraph_convcoa
    """
    rows = "\n".join(f"| {name} | {count:,} |" for name, count in sources.items())
    return f"""# A retriever model of langgraph_convcoa

It holds {", ".join(model_parts(model).values()) or "settings alone"}, for passages encoded by `{model.encoder}`.

| trained on | questions |
|---|---:|
{rows}

Of data with a split `dev` that split was left out, else a fifth of the conversations by a hash of their ids.

    {command}

Measure it on conversations of your own before you rely on it: `convcoa evaluate retrieval DATA --model DIR`.
"""
