"""A question tower on disk: what training changed in each tensor of its encoder, in eight bits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.query.query_encoder_text import Reading

_FORMAT = "convcoa question tower"
_VERSION = 1
_SCALES = ".scale"
_LARGEST = 127


@dataclass(frozen=True, eq=False)
class Differences:
    """Trained weights less those of the encoder, of the tensors that differ at all.

    Attributes:
        tensors: By the name in the encoder's transformer: matrices as int8 with one scale a row under `{name}.scale`, the
            largest absolute entry over 127; vectors, and everything with 32 bits, as float32.
        base_hash: Of the encoder's weights that they were taken from.
    """

    tensors: dict[str, Tensor]
    base_hash: str

    @classmethod
    def between(cls, base: Mapping[str, Tensor], trained: Mapping[str, Tensor], *, bits: int = 8) -> Differences:
        """What was added to the weights of an encoder.

        Raises:
            InputError: `bits` is neither 8 nor 32.
            RetrievalError: The two are not of one architecture.

        Example:
            >>> found = Differences.between({"w": torch.zeros(1, 2)}, {"w": torch.tensor([[0.5, 1.27]])})
            >>> found.tensors["w"].tolist(), found.added("w").tolist()
            ([[50, 127]], [[0.5, 1.2699999809265137]])
        """
        from langgraph_convcoa.retrieval.query.query_encoder_module import fingerprint

        if bits not in (8, 32):
            raise InputError(f"A tower is kept in 8 or 32 bits, not {bits}.")
        if {name: tensor.shape for name, tensor in base.items()} != {name: tensor.shape for name, tensor in trained.items()}:
            raise RetrievalError("The trained tower and its encoder are not of one architecture.")
        tensors: dict[str, Tensor] = {}
        for name, before in base.items():
            change = trained[name].detach().cpu().float() - before.detach().cpu().float()
            if not change.any():
                continue
            if change.ndim < 2 or bits == 32:
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

    def scaled(self, share: float) -> Differences:
        """A share of the differences: weights between those of the encoder and the trained ones.

        Example:
            >>> found = Differences.between({"w": torch.zeros(1, 2)}, {"w": torch.tensor([[0.5, 1.27]])})
            >>> found.scaled(0.5).added("w").tolist()
            [[0.25, 0.6349999904632568]]
        """
        return Differences(
            {name: tensor if tensor.dtype == torch.int8 else share * tensor for name, tensor in self.tensors.items()},
            self.base_hash,
        )

    def add_to(self, weights: Mapping[str, Tensor], base: str, *, check: bool = True) -> None:
        """Add the differences to an encoder's weights, in place.

        Raises:
            RetrievalError: They are not the weights that the differences were taken from.
        """
        from langgraph_convcoa.retrieval.query.query_encoder_module import fingerprint

        if check and fingerprint(weights) != self.base_hash:
            raise RetrievalError(
                f"The question tower was trained from other weights than those of the encoder {base!r} here; "
                "train one for this encoder, or use model='untrained'."
            )
        with torch.no_grad():
            for name in self.tensors:
                if not name.endswith(_SCALES):
                    weights[name].add_(self.added(name).to(weights[name].device))

    def save(self, path: str | Path, base: str, reading: Reading) -> None:
        """Write a file, in place of one that is there, all at once or not at all."""
        target = Path(path)
        partial = target.with_name(f".{target.name}.partial")
        head = {"format": _FORMAT, "version": str(_VERSION), "base": base, "base_hash": self.base_hash}
        try:
            save_file(
                {name: tensor.contiguous() for name, tensor in self.tensors.items()},
                partial,
                metadata=head | {"reading": json.dumps(asdict(reading))},
            )
            partial.replace(target)
        except (OSError, SafetensorError) as error:
            raise RetrievalError(f"The question tower cannot be written to {target}: {error}.") from error
        finally:
            partial.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path) -> tuple[Differences, str, Reading]:
        """The differences in a file, the name of their encoder, and how much is read.

        Raises:
            RetrievalError: The file is missing, damaged, cut short or of another version.
        """
        file = Path(path)
        try:
            with safe_open(file, framework="pt") as stored:
                head = stored.metadata() or {}
                tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 - no mapping
        except (OSError, SafetensorError, ValueError) as error:
            raise RetrievalError(
                f"The question tower {file} is missing, damaged or cut short ({error}); copy it again."
            ) from error
        if head.get("format") != _FORMAT or head.get("version") != str(_VERSION):
            found = f"version {head.get('version')}" if head.get("format") == _FORMAT else "another kind of file"
            raise RetrievalError(f"The question tower {file} is {found}; this library reads version {_VERSION}.")
        try:
            reading = Reading(**json.loads(head["reading"]))
            return cls(tensors, head["base_hash"]), head["base"], reading
        except (KeyError, TypeError, ValueError) as error:
            raise RetrievalError(f"The head of the question tower {file} cannot be read ({error}); copy it again.") from error
