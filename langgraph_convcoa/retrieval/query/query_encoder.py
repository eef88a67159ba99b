"""The query encoder: the vector of a question in its conversation, from the question and the turns before it."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from langgraph_convcoa.errors import RetrievalError, first_line
from langgraph_convcoa.retrieval.encoders.base import Vectors, cores, normalised
from langgraph_convcoa.retrieval.encoders.bert import Array, OnnxBert, bert_of
from langgraph_convcoa.retrieval.query.query_text import QueryText, Reading

if TYPE_CHECKING:
    from torch import Tensor

    from langgraph_convcoa.retrieval.query.query_encoder_module import QueryEncoderModule

_BATCH = 32
_FORMAT = "convcoa question tower"
_VERSION = 1
_SCALES = ".scale"
_LARGEST = 127


@dataclass(frozen=True, eq=False)
class Differences:
    """Trained weights minus the encoder's, for the tensors that differ. `base_hash` is a hash of the encoder's weights.

    A tensor is named as in the encoder's transformer. Matrices are int8; `{name}.scale` has a scale for each row, the row's
    largest absolute entry over 127. Vectors are float32.
    """

    tensors: dict[str, npt.NDArray[Any]]
    base_hash: str

    @classmethod
    def between(cls, base: Mapping[str, Array], trained: Mapping[str, Array]) -> Differences:
        """Compute the differences of trained weights from an encoder's weights; RetrievalError for another architecture."""
        if {name: tensor.shape for name, tensor in base.items()} != {name: tensor.shape for name, tensor in trained.items()}:
            raise RetrievalError("The trained query encoder and its encoder are not of one architecture.")
        tensors: dict[str, npt.NDArray[Any]] = {}
        for name, before in base.items():
            change = (trained[name] - before).astype(np.float32)
            if not change.any():
                continue
            if change.ndim < 2:
                tensors[name] = change
                continue
            scales = np.abs(change).max(axis=1, keepdims=True) / np.float32(_LARGEST)
            scales[scales == 0] = 1.0
            tensors[name] = np.clip(np.rint(change / scales), -_LARGEST, _LARGEST).astype(np.int8)
            tensors[name + _SCALES] = scales
        return cls(tensors, fingerprint(base))

    def added_to(self, weights: Mapping[str, Array], base: str) -> dict[str, Array]:
        """An encoder's weights plus the differences; RetrievalError for another encoder's weights."""
        if fingerprint(weights) != self.base_hash:
            fault = f"The query encoder was trained from other weights than those of the encoder {base!r} here"
            raise RetrievalError(f"{fault}; train one for this encoder, or use model='untrained'.")
        changed = dict(weights)
        for name in weights.keys() & self.tensors.keys():
            change: Array = self.tensors[name].astype(np.float32)
            changed[name] = changed[name] + change * self.tensors.get(name + _SCALES, np.float32(1))
        return changed

    def add_to(self, weights: Mapping[str, Tensor], base: str) -> None:
        """Like `added_to`, but change the weights of a network in place."""
        import torch

        changed = self.added_to(arrays(weights), base)
        with torch.no_grad():
            for name in weights.keys() & self.tensors.keys():
                weights[name].copy_(torch.from_numpy(changed[name]))


def arrays(weights: Mapping[str, Tensor]) -> dict[str, Array]:
    """Tensors as float32 arrays."""
    return {name: tensor.detach().float().cpu().numpy() for name, tensor in weights.items()}


def fingerprint(weights: Mapping[str, npt.NDArray[Any]]) -> str:
    """A hash of weights. Differences fit only the weights from which they were computed."""
    digest = hashlib.sha256()
    for name, weight in sorted(weights.items()):
        digest.update(f"{name}{weight.shape}".encode())
        digest.update(np.ascontiguousarray(weight, dtype=np.float32).tobytes())
    return digest.hexdigest()


class QueryEncoder:
    """A trained copy of the encoder that reads `question [SEP] turns, newest first` in 128 tokens.

    It gives the vector that the encoder would give to the self-contained question, so indexes of passages stay valid.
    The trained weights are kept as 8-bit differences from the encoder (`base`, a name or folder). The encoder is loaded on
    first use. Threads may share a query encoder.
    """

    def __init__(self, base: str, differences: Differences, reading: Reading | None = None) -> None:
        self.base, self.differences, self.reading = base, differences, reading or Reading()
        self._module: QueryEncoderModule | None = None
        self._onnx: tuple[OnnxBert, QueryText] | None = None
        self._looked = False
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"QueryEncoder({self.base!r}, {self.reading!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.base, self.differences, self.reading)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # Threads may share a query encoder, so copies share it too.
        return self

    @classmethod
    def of(cls, module: QueryEncoderModule, base: str) -> QueryEncoder:
        """The query encoder of a trained module: its differences from the encoder, rounded to 8 bits."""
        untrained = type(module).of(base, module.text.reading, device="cpu")
        differences = Differences.between(arrays(untrained.learned()), arrays(module.learned()))
        return cls(base, differences, module.text.reading)

    @classmethod
    def load(cls, path: str | Path) -> QueryEncoder:
        """Read a file that `save` wrote; `RetrieverModel.load` compares the checksum."""
        try:
            with safe_open(path, framework="numpy") as stored:
                head = stored.metadata() or {}
                tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 - no mapping
            if head.get("format") != _FORMAT or head.get("version") != str(_VERSION):
                raise RetrievalError(f"{path} is no query encoder of version {_VERSION}, which this library reads.")
            reading = Reading(**json.loads(head["reading"]))
            return cls(head["base"], Differences(tensors, head["base_hash"]), reading)
        except (OSError, SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
            fault = f"The query encoder {path} is missing, damaged or cut short ({first_line(error)})"
            raise RetrievalError(f"{fault}; copy it again.") from error

    def save(self, path: str | Path) -> None:
        """Write the differences to a file; `RetrieverModel.save` replaces the whole folder at once."""
        head = {"format": _FORMAT, "version": str(_VERSION), "base": self.base, "base_hash": self.differences.base_hash}
        head["reading"] = json.dumps(asdict(self.reading))
        tensors = {name: np.ascontiguousarray(tensor) for name, tensor in self.differences.tensors.items()}
        save_file(tensors, path, metadata=head)

    def encode(self, questions: Sequence[str], histories: Sequence[Sequence[tuple[str, str]]]) -> Vectors:
        """Vectors (n, d) of n questions with their earlier turns, oldest first.

        Reads the first 126 tokens of a question, and as many of its turns as there is room for, the newest first.
        Raises RetrievalError if the encoder cannot be loaded, or the query encoder was trained from another encoder.
        """
        if (found := self._in_onnxruntime()) is None:
            return self._encode_in_torch(questions, histories)
        network, text = found
        rows = network.recent_vectors(text.ids(questions, histories))
        return normalised(rows, len(questions), network.dimension, f"query encoder of {self.base}")

    def _in_onnxruntime(self) -> tuple[OnnxBert, QueryText] | None:
        """The network and its tokenizer in ONNX Runtime; None if torch computes the vectors."""
        with self._lock:
            if not self._looked and self._module is None:
                bert = bert_of(self.base, None)
                if bert is not None:
                    trained = replace(bert, weights={**bert.weights, **self.differences.added_to(bert.learned(), self.base)})
                    network = trained.network(int8=False, threads=cores())
                    self._onnx = network, QueryText(bert.tokenizer, self.reading)
                self._looked = True
            return self._onnx if self._module is None else None

    def _encode_in_torch(self, questions: Sequence[str], histories: Sequence[Sequence[tuple[str, str]]]) -> Vectors:
        import torch

        module = self.module()
        with self._lock, torch.inference_mode():
            ids = module.text.ids(questions, histories)
            batches = [ids[start : start + _BATCH] for start in range(0, len(ids), _BATCH)]
            rows = [module(batch).cpu().numpy() for batch in batches]
        found: Vectors = np.concatenate(rows) if rows else np.zeros((0, 0), dtype=np.float32)
        if not np.isfinite(found).all():
            raise RetrievalError("The query encoder gave NaN or infinity; train it again or use another model.")
        return found

    def module(self) -> QueryEncoderModule:
        """The query encoder's network, made on first use."""
        from langgraph_convcoa.retrieval.query.query_encoder_module import QueryEncoderModule

        with self._lock:
            if self._module is None:
                module = QueryEncoderModule.of(self.base, self.reading).eval()
                self.differences.add_to(module.learned(), self.base)
                for parameter in module.parameters():
                    parameter.requires_grad_(False)
                self._module = module
            return self._module
