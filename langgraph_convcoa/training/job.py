"""A training job: where the model goes, how the training runs, and the model's card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from langgraph_convcoa.datasets.queries import Dataset
from langgraph_convcoa.retrieval.encoders.cache import PatternCache
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.retrieval.query.model import RetrieverModel, check_model_folder
from langgraph_convcoa.training.data import TrainingData
from langgraph_convcoa.training.trainer import check_packages
from langgraph_convcoa.training.unfinished import Unfinished


@dataclass(frozen=True)
class TrainingJob:
    """Where a trained model goes, and how its training runs."""

    out: str | Path | None = None  # Folder for the model; the checkpoints are beside it. None only returns the model.
    resume: bool = False  # Resume an unfinished training into `out`.
    device: str | None = None  # "cpu", "cuda", ...; chosen when None.
    logs: str | Path | None = None  # Folder for TensorBoard.
    cache: PatternCache | None = None  # Where vectors are kept between runs.
    progress: Progress = False
    command: str = ""  # Command for the model's card; no card is written without it.

    @property
    def unfinished(self) -> Unfinished | None:
        """The folder of the unfinished training."""
        return None if self.out is None else Unfinished.beside(self.out)

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of `trainer.train` that the job sets."""
        return {name: getattr(self, name) for name in ("unfinished", "resume", "device", "logs", "progress")}

    def check(self) -> None:
        """Check the packages and the folders before anything is read or encoded."""
        check_packages(self.logs)
        if self.out is not None:
            check_model_folder(self.out)
            Unfinished.beside(self.out).check(resume=self.resume)

    def finish(
        self, model: RetrieverModel, data: TrainingData | None = None, single_turn: Sequence[Dataset] = ()
    ) -> RetrieverModel:
        """Save the model with a card, and remove the checkpoints."""
        if self.command:
            sources = (data.sources if data is not None else {}) | {one.name: len(one.queries) for one in single_turn}
            model = replace(model, card=model_card(model, sources, self.command))
        if self.out is not None:
            from accelerate import PartialState

            if PartialState().is_main_process:
                model.save(self.out)
                Unfinished.beside(self.out).remove()
        return model


def model_parts(model: RetrieverModel) -> dict[str, str]:
    """The trained parts of a model: short name -> description."""
    parts = (
        ("state", model.state, "projections and a gate of the conversation state"),
        ("query encoder", model.query_encoder, "a query encoder, as 8-bit differences from the encoder"),
    )
    return {name: description for name, part, description in parts if part is not None}


def model_card(model: RetrieverModel, sources: Mapping[str, int], command: str) -> str:
    """A card in Markdown, to which its owner adds licences and measured numbers."""
    rows = "\n".join(f"| {name} | {count:,} |" for name, count in sources.items())
    return f"""# A retriever model of langgraph_convcoa

It holds {", ".join(model_parts(model).values()) or "settings alone"}, for passages encoded by `{model.encoder}`.

| trained on | questions |
|---|---:|
{rows}

The split `dev` of the data was left out; without such a split, a fifth of the conversations (by a hash of their ids).

    {command}

Measure it on conversations of your own before you rely on it: `convcoa evaluate retrieval DATA --model DIR`.
"""
