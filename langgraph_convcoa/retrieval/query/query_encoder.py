"""The query encoder: the vector of what a question means in its conversation, from the question and the turns before it."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.files import replacing
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.query.query_encoder_module import QueryEncoderModule, Reading, fingerprint

_BATCH = 32
_FORMAT = "convcoa question tower"
_VERSION = 1
_SCALES = ".scale"
_LARGEST = 127


@dataclass(frozen=True, eq=False)
class Differences:
    """Trained weights less those of the encoder, whose weights have the hash `base_hash`, of the tensors that differ at all.

    By the name in the encoder's transformer: matrices as int8 with one scale a row under `{name}.scale`, the largest absolute
    entry over 127; vectors as float32.
    """

    tensors: dict[str, Tensor]
    base_hash: str

    @classmethod
    def between(cls, base: Mapping[str, Tensor], trained: Mapping[str, Tensor]) -> Differences:
        """The differences of trained weights from those of an encoder, of the same architecture (else RetrievalError).

        Example:
            >>> found = Differences.between({"w": torch.zeros(1, 2)}, {"w": torch.tensor([[0.5, 1.27]])})
            >>> found.tensors["w"].tolist(), found.added("w").tolist()
            ([[50, 127]], [[0.5, 1.2699999809265137]])
        """
        if {name: tensor.shape for name, tensor in base.items()} != {name: tensor.shape for name, tensor in trained.items()}:
            raise RetrievalError("The trained query encoder and its encoder are not of one architecture.")
        tensors: dict[str, Tensor] = {}
        for name, before in base.items():
            change = trained[name].detach().cpu().float() - before.detach().cpu().float()
            if not change.any():
                continue
            if change.ndim < 2:
                tensors[name] = change
                continue
            scales = change.abs().amax(dim=1, keepdim=True) / _LARGEST
            scales[scales == 0] = 1.0
            tensors[name] = (change / scales).round().clamp(-_LARGEST, _LARGEST).to(torch.int8)
            tensors[name + _SCALES] = scales
        return cls(tensors, fingerprint(base))

    def added(self, name: str) -> Tensor:
        """The difference of a tensor, float32."""
        change = self.tensors[name].float()
        return change * self.tensors[name + _SCALES] if name + _SCALES in self.tensors else change

    def add_to(self, weights: Mapping[str, Tensor], base: str) -> None:
        """Add the differences to an encoder's weights, in place; RetrievalError where these are not the ones they are from."""
        if fingerprint(weights) != self.base_hash:
            fault = f"The query encoder was trained from other weights than those of the encoder {base!r} here"
            raise RetrievalError(f"{fault}; train one for this encoder, or use model='untrained'.")
        with torch.no_grad():
            for name in self.tensors:
                if not name.endswith(_SCALES):
                    weights[name].add_(self.added(name).to(weights[name].device))


class QueryEncoder:
    """A trained copy of the encoder that reads `question [SEP] turns, newest first` in 128 tokens.

    It gives the vector that the encoder would give to the question in full, so that an index of passages stays as it is.
    The trained weights are kept as 8-bit differences from the encoder (`base`, a name or folder), which is loaded on first
    use. Several threads may use one query encoder.
    """

    def __init__(
        self,
        base: str,
        differences: Differences,
        reading: Reading | None = None,
        *,
        device: str | None = None,
        batch_size: int = _BATCH,
    ) -> None:
        self.base, self.differences, self.reading = base, differences, reading or Reading()
        self.device, self.batch_size = device, batch_size
        self._module: QueryEncoderModule | None = None
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"QueryEncoder({self.base!r}, {self.reading!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        made = partial(type(self), self.base, self.differences, self.reading, device=self.device, batch_size=self.batch_size)
        return made, ()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # Threads share it, and so may copies.
        return self

    @classmethod
    def of(cls, module: QueryEncoderModule, base: str) -> QueryEncoder:
        """The query encoder of a trained module: its differences from the encoder, rounded to 8 bits."""
        untrained = QueryEncoderModule.of(base, module.text.reading, device="cpu")
        return cls(base, Differences.between(untrained.learned(), module.learned()), module.text.reading)

    @classmethod
    def load(cls, path: str | Path, *, base: str | None = None, device: str | None = None) -> QueryEncoder:
        """Read what `save` wrote and check its SHA-256; the encoder is loaded on first use, by its name or another's."""
        try:
            with safe_open(path, framework="pt") as stored:
                head = stored.metadata() or {}
                tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 - no mapping
        except (OSError, SafetensorError, ValueError) as error:
            message = f"The query encoder {path} is missing, damaged or cut short ({error}); copy it again."
            raise RetrievalError(message) from error
        if head.get("format") != _FORMAT or head.get("version") != str(_VERSION):
            found = f"version {head.get('version')}" if head.get("format") == _FORMAT else "another kind of file"
            raise RetrievalError(f"The query encoder {path} is {found}; this library reads version {_VERSION}.")
        try:
            if "sha256" in head and _digest(head, tensors) != head["sha256"]:
                raise RetrievalError(f"The query encoder {path} is damaged: it is not what was saved; copy it again.")
            reading = Reading(**json.loads(head["reading"]))
            return cls(base or head["base"], Differences(tensors, head["base_hash"]), reading, device=device)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise RetrievalError(f"The head of the query encoder {path} cannot be read ({error}); copy it again.") from error

    def save(self, path: str | Path) -> None:
        """Write the differences to a file, in place of one that is there, all at once or not at all."""
        head = {"format": _FORMAT, "version": str(_VERSION), "base": self.base, "base_hash": self.differences.base_hash}
        head["reading"] = json.dumps(asdict(self.reading))
        tensors = {name: tensor.contiguous() for name, tensor in self.differences.tensors.items()}
        head["sha256"] = _digest(head, tensors)
        try:
            with replacing(path) as partial:
                save_file(tensors, partial, metadata=head)
        except (OSError, SafetensorError) as error:
            raise RetrievalError(f"The query encoder cannot be written to {path}: {error}.") from error

    def encode(
        self, questions: Sequence[str], histories: Sequence[Sequence[tuple[str, str]]], *, bfloat16: bool = False
    ) -> Vectors:
        """Vectors (n, d) of n questions with their earlier turns, oldest first.

        Of a question the first 126 tokens are read, of its turns as many as there is room for, the newest first.
        RetrievalError where the encoder cannot be loaded, or is another than the query encoder was trained from.
        """
        module = self.module()
        with self._lock, torch.inference_mode():
            ids = module.text.ids(questions, histories)
            device = next(module.parameters()).device
            half = torch.autocast(device.type, dtype=torch.bfloat16) if bfloat16 else nullcontext()
            rows: list[Vectors] = [np.zeros(0, dtype=np.float32)] * len(ids)
            order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
            for start in range(0, len(order), self.batch_size):
                batch = order[start : start + self.batch_size]
                with half:
                    vectors = module([ids[i] for i in batch])
                for place, row in zip(batch, vectors.cpu().numpy(), strict=True):
                    rows[place] = row
        found = np.stack(rows).astype(np.float32) if rows else np.zeros((0, 0), dtype=np.float32)
        if not np.isfinite(found).all():
            raise RetrievalError("The query encoder gave NaN or infinity; train it again or use another model.")
        return found

    def module(self) -> QueryEncoderModule:
        """The query encoder's network, made on first use."""
        with self._lock:
            if self._module is None:
                module = QueryEncoderModule.of(self.base, self.reading, device=self.device).eval()
                self.differences.add_to(module.learned(), self.base)
                for parameter in module.parameters():
                    parameter.requires_grad_(False)
                self._module = module
            return self._module


def _digest(head: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of a query encoder's head and weights, bit by bit."""
    digest = hashlib.sha256(
        json.dumps({name: value for name, value in head.items() if name != "sha256"}, sort_keys=True).encode()
    )
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    return digest.hexdigest()
