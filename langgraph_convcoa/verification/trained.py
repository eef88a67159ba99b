"""A small trained verifier: a cross-encoder in onnxruntime, without torch."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.files import replacing
from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER
from langgraph_convcoa.retrieval.encoders.bert import LAYER, Array, Bert, bert_of
from langgraph_convcoa.retrieval.encoders.onnx_bert import OnnxBert
from langgraph_convcoa.retrieval.query.query_encoder import Differences

_FORMAT = "convcoa verifier"
_VERSION = "1"
_TOKENS = 192
_LONGEST = 4_000
"""Characters of a claim or a premise that are read."""
_HEAD, _BIAS = "head.weight", "head.bias"
_ALSO = ("embeddings.token_type_embeddings.weight", "embeddings.LayerNorm.weight", "embeddings.LayerNorm.bias")


class TrainedVerifier:
    """A copy of the default encoder that reads a claim and its premise, with a linear layer over [CLS] and the mean.

    The file has the differences from the encoder's weights in eight bits. The linear layers compute in eight bits
    (`OnnxBert`). Several threads may use one verifier. RetrievalError on first use if the file or the encoder is missing,
    damaged, or does not fit.

    Example:
        >>> TrainedVerifier("my/verifier.safetensors")
        TrainedVerifier('my/verifier.safetensors')
    """

    def __init__(self, path: str | Path, *, threshold: float | None = None) -> None:
        self.path = Path(path)
        self.name = str(path)
        self._given = threshold
        self._loaded: tuple[OnnxBert, Any, Array, float, float] | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"TrainedVerifier({self.name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _trained, (str(self.path), self._given)

    @property
    def threshold(self) -> float:
        """T, chosen when the verifier was trained."""
        return self._given if self._given is not None else self._load()[4]

    def support(self, claims: Sequence[str], premises: Sequence[str]) -> list[float]:
        network, tokenizer, head, bias, _ = self._load()
        pairs = [(claim[:_LONGEST], premise[:_LONGEST]) for claim, premise in zip(claims, premises, strict=True)]
        encodings = tokenizer.encode_batch(pairs)
        rows = network.vectors([one.ids for one in encodings], types=[one.type_ids for one in encodings])
        shares = 1 / (1 + np.exp(-np.clip(rows.astype(np.float64) @ head + bias, -60, 60)))
        return [float(share) for share in shares]

    def _load(self) -> tuple[OnnxBert, Any, Array, float, float]:
        with self._lock:
            if self._loaded is None:
                self._loaded = self._read()
            return self._loaded

    def _read(self) -> tuple[OnnxBert, Any, Array, float, float]:
        from tokenizers import Tokenizer

        try:
            with safe_open(self.path, framework="numpy") as stored:
                meta = stored.metadata() or {}
                tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 - no mapping
            if (meta.get("format"), meta.get("version")) != (_FORMAT, _VERSION):
                raise ValueError(f"it is version {meta.get('version')} of {meta.get('format')!r}")
            settings = json.loads(meta["settings"])
            base, threshold = str(settings["base"]), float(settings["threshold"])
            head, bias = tensors.pop(_HEAD).astype(np.float64), float(tensors.pop(_BIAS)[0])
        except (OSError, SafetensorError, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            raise RetrievalError(f'The verifier {self.path} cannot be read ({error}); use verifier="default".') from error
        bert = bert_of(base, "cpu")
        if bert is None:
            raise RetrievalError(f'The verifier needs the encoder {base!r}: pip install "langgraph-convcoa[offline]".')
        changed = Differences(tensors, meta["base_hash"]).added_to(_trainable(bert), base)
        network = OnnxBert(replace(bert, weights={**bert.weights, **changed}), int8=True, pooling="both")
        if head.shape != (network.dimension,):
            raise RetrievalError(f"The verifier {self.path} does not fit the encoder {base!r}; train it again.")
        tokenizer = Tokenizer.from_str(bert.tokenizer.to_str())
        tokenizer.enable_truncation(min(_TOKENS, bert.max_tokens), strategy="longest_first")
        return network, tokenizer, head, bias, threshold


def save_verifier(
    path: str | Path, weights: dict[str, Array], head: Array, bias: float, threshold: float, base: str = DEFAULT_ENCODER
) -> None:
    """Write a trained verifier: weights by their names in the encoder, the head over [CLS] and mean, and T."""
    bert = bert_of(base, "cpu")
    if bert is None:
        raise RetrievalError(f"The base encoder {base!r} is not on this machine.")
    differences = Differences.between(_trainable(bert), {name: weights[name] for name in _trainable(bert)})
    tensors: dict[str, npt.NDArray[Any]] = {name: np.ascontiguousarray(one) for name, one in differences.tensors.items()}
    tensors |= {_HEAD: head.astype(np.float32), _BIAS: np.array([bias], dtype=np.float32)}
    settings = json.dumps({"base": base, "threshold": threshold})
    meta = {"format": _FORMAT, "version": _VERSION, "base_hash": differences.base_hash, "settings": settings}
    with replacing(path) as partial:
        save_file(tensors, partial, metadata=meta)


def _trainable(bert: Bert) -> dict[str, Array]:
    """The weights that a verifier may differ in: all but the embeddings of words and positions."""
    return {name: weight for name, weight in bert.weights.items() if name.startswith(LAYER) or name in _ALSO}


def _trained(path: str, threshold: float | None) -> TrainedVerifier:
    return TrainedVerifier(path, threshold=threshold)
