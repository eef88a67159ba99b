"""The folder of an unfinished training: its settings, and the checkpoints of transformers' `Trainer`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langgraph_convcoa.errors import ConvCoAError, InputError, RetrievalError, first_line
from langgraph_convcoa.files import replacing

_SETTINGS = "training.json"
_FREE = ("command", "checkpoint_every")
"""Settings that may change when a training is resumed."""


@dataclass(frozen=True)
class Unfinished:
    """The folder of an unfinished training."""

    folder: Path

    @classmethod
    def beside(cls, out: str | Path) -> Unfinished:
        """The folder beside the folder of the model."""
        place = Path(out)
        return cls(place.with_name(f"{place.resolve().name}.training"))

    @property
    def checkpoint(self) -> Path | None:
        """The last complete checkpoint; the trainer writes its state last."""
        found = [state.parent for state in self.folder.glob("checkpoint-*/trainer_state.json")]
        return max(found, key=lambda place: int(place.name.rpartition("-")[2]), default=None)

    def check(self, *, resume: bool) -> None:
        """Raise InputError if the folder has a checkpoint and `resume` is False, or if it is not the folder of a training."""
        if self.checkpoint is not None and not resume:
            raise InputError(f"{self.folder} holds an unfinished training: resume it (--resume), or delete it to start again.")
        if self.folder.exists() and not (self.folder / _SETTINGS).is_file():
            raise InputError(f"{self.folder} is not the folder of a training: move it, or name another --out.")
        with writable(self.folder):
            self.folder.parent.mkdir(parents=True, exist_ok=True)

    def begin(self, settings: Mapping[str, Any], *, resume: bool) -> str | None:
        """Write the settings of a new training, or compare them with the settings of the training to resume.

        Returns the checkpoint for `Trainer.train`, None for a new training. Raises InputError if a setting differs.
        """
        self.check(resume=resume)
        given: dict[str, Any] = json.loads(json.dumps(settings, default=str))
        path, checkpoint = self.folder / _SETTINGS, self.checkpoint
        if checkpoint is not None:
            try:
                known: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise RetrievalError(f"{path} is damaged: delete {path.parent} to start again.") from error
            for name in sorted((known.keys() | given.keys()) - set(_FREE)):
                if known.get(name) != given.get(name):
                    raise InputError(
                        f"The training in {self.folder} was started with {name} = {known.get(name)!r}, not "
                        f"{given.get(name)!r}: give the same, or delete the folder to start again."
                    )
            return str(checkpoint)
        self.remove()
        with writable(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            with replacing(path) as partial:
                partial.write_text(json.dumps(given, indent=2) + "\n", encoding="utf-8")
        return None

    def remove(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def writable(folder: str | Path) -> Iterator[None]:
    """Raise RetrievalError if the block cannot write to a folder.

    On a full disk torch raises RuntimeError, and safetensors and tokenizers have errors of their own.
    """
    try:
        yield
    except ConvCoAError:
        raise
    except Exception as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise RetrievalError(f"{folder} cannot be written ({reason}): free space or name another folder.") from error
