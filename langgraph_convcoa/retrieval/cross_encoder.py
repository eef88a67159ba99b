"""Networks that read two texts together: small networks in onnxruntime, without torch, and sentence-transformers models."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from langgraph_convcoa.errors import RetrievalError, first_line
from langgraph_convcoa.files import replacing
from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER
from langgraph_convcoa.retrieval.encoders.bert import LAYER, Array, Bert, OnnxBert, bert_of
from langgraph_convcoa.retrieval.query.query_encoder import Differences
from langgraph_convcoa.text.words import stem

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder
    from tokenizers import Encoding, Tokenizer

_VERSION = "2"
_NUMBER = {"verifier": "threshold", "reranker": "weight"}  # The number that each kind of network is saved with.
_TOKENS = 192
_BATCH = 32
LONGEST = 4_000  # Characters of a text that are read.
_HEAD, _BIAS, _SHARED = "head.weight", "head.bias", "shared.weight"
_TYPES = "embeddings.token_type_embeddings.weight"
_ALSO = (_TYPES, "embeddings.LayerNorm.weight", "embeddings.LayerNorm.bias")


class TextPairs:
    """Some layers of the default encoder, trained to read two texts, with a linear layer over [CLS] and the mean.

    Words that stand in both texts get their own token types (`token_types`). The file has the differences from the encoder's
    weights in eight bits. The linear layers compute in eight bits (`OnnxBert`). The file is read on first use: RetrievalError
    if it or the encoder is missing or damaged, or if they do not fit. Threads may share an object. `save_text_pairs` wrote the
    file; `kind` is "verifier" or "reranker".
    """

    def __init__(self, path: str | Path, kind: str) -> None:
        self.path, self._kind = Path(path), kind
        self._loaded: tuple[OnnxBert, Tokenizer, npt.NDArray[np.float64], float, float] | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy reads the file again when it needs it.
        return TextPairs, (self.path, self._kind)

    @property
    def number(self) -> float:
        """The threshold T of a verifier, or the weight of a reranker."""
        return self._parts()[4]

    def logits(self, firsts: Sequence[str], seconds: Sequence[str]) -> npt.NDArray[np.float64]:
        """The logit of each pair, (n,)."""
        network, tokenizer, head, bias, _ = self._parts()
        pairs = [(first[:LONGEST], second[:LONGEST]) for first, second in zip(firsts, seconds, strict=True)]
        encodings = tokenizer.encode_batch(pairs)
        types = [token_types(one, *pair) for one, pair in zip(encodings, pairs, strict=True)]
        rows = network.vectors([one.ids for one in encodings], types=types)
        found: npt.NDArray[np.float64] = rows.astype(np.float64) @ head + bias
        return found

    def _parts(self) -> tuple[OnnxBert, Tokenizer, npt.NDArray[np.float64], float, float]:
        with self._lock:
            if self._loaded is None:
                self._loaded = self._read()
            return self._loaded

    def _read(self) -> tuple[OnnxBert, Tokenizer, npt.NDArray[np.float64], float, float]:
        from tokenizers import Tokenizer

        kind = self._kind
        try:
            with safe_open(self.path, framework="numpy") as stored:
                meta = stored.metadata() or {}
                tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 - no mapping
            if (meta.get("format"), meta.get("version")) != (f"convcoa {kind}", _VERSION):
                raise ValueError(f"it is version {meta.get('version')} of {meta.get('format')!r}")
            settings = json.loads(meta["settings"])
            base, layers, number = str(settings["base"]), settings.get("layers"), float(settings[_NUMBER[kind]])
            head, bias = tensors.pop(_HEAD).astype(np.float64), float(tensors.pop(_BIAS)[0])
            shared = tensors.pop(_SHARED)
            bert = bert_of(base, "cpu")
            if bert is None:
                raise RetrievalError(f'The {kind} needs the encoder {base!r}: pip install "langgraph-convcoa[offline]".')
            changed = Differences(tensors, meta["base_hash"]).added_to(trained_weights(bert, layers), base)
        except (OSError, SafetensorError, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            raise RetrievalError(f'The {kind} {self.path} cannot be read ({error}); use {kind}="default".') from error
        changed[_TYPES] = np.concatenate([changed[_TYPES], changed[_TYPES] + shared])
        kept = {name: weight for name, weight in bert.weights.items() if not name.startswith(LAYER)}
        network = OnnxBert(replace(bert, weights={**kept, **changed}), int8=True, pooling="both")
        if head.shape != (network.dimension,):
            raise RetrievalError(f"The {kind} {self.path} does not fit the encoder {base!r}; train it again.")
        tokenizer = Tokenizer.from_str(bert.tokenizer.to_str())
        tokenizer.enable_truncation(min(_TOKENS, bert.max_tokens), strategy="longest_first")
        return network, tokenizer, head, bias, number


class SentenceTransformersPairs:
    """A sentence-transformers `CrossEncoder` that reads pairs of texts; loaded on first use. Threads may share an object.

    `wanted` is for error messages: the purpose of the model, and what to use without it.
    """

    def __init__(self, name: str, device: str | None, wanted: tuple[str, str]) -> None:
        self.name, self.device, self._wanted = name, device, wanted
        self._model: CrossEncoder | None = None
        # Fast tokenizers keep their truncation as state, so one batch is read at a time.
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return SentenceTransformersPairs, (self.name, self.device, self._wanted)

    def logits(self, pairs: Sequence[tuple[str, str]]) -> npt.NDArray[np.float64]:
        """The logits of n pairs: (n,) for a model with one output, (n, outputs) for others."""
        import torch

        cut = [(first[:LONGEST], second[:LONGEST]) for first, second in pairs]
        with self._lock:
            # The logits are taken, because the activation that a model applies to them depends on how it was saved.
            identity = torch.nn.Identity()
            found = self._opened().predict(cut, batch_size=_BATCH, activation_fn=identity, show_progress_bar=False)
        logits = np.asarray(found, dtype=np.float64)
        if not np.isfinite(logits).all():
            raise RetrievalError(f"The {self._wanted[0]} {self.name!r} gave NaN; use another one.")
        return logits

    def labels(self) -> list[str]:
        """The names of the outputs."""
        with self._lock:
            model = self._opened()
        named = {int(place): str(label) for place, label in (getattr(model.config, "id2label", None) or {}).items()}
        return [named.get(place, "") for place in range(int(model.num_labels))]

    def _opened(self) -> CrossEncoder:
        if self._model is None:
            try:
                from sentence_transformers import CrossEncoder

                self._model = CrossEncoder(self.name, device=self.device)
            # The hub, the file formats and torch raise errors of many types; all mean that there is no model.
            except Exception as error:
                reason = f"The {self._wanted[0]} {self.name!r} cannot be loaded ({first_line(error)})"
                raise RetrievalError(
                    f"{reason}: name another CrossEncoder or its folder, or use {self._wanted[1]}."
                ) from error
        return self._model


def token_types(encoding: Encoding, first: str, second: str) -> list[int]:
    """The types of a pair's tokens: 0 in the first text, 1 in the second; plus 2 if the word's stem is in both texts.

    Words that only one text has are informative. A small network is slow to find them by attention.
    """
    texts = first, second
    places = list(zip(encoding.sequence_ids, encoding.word_ids, encoding.offsets, strict=True))
    spans: dict[tuple[int | None, int | None], tuple[int, int]] = {}
    for side, word, (start, end) in places:
        opened, closed = spans.get((side, word), (start, end))
        spans[side, word] = min(opened, start), max(closed, end)
    stems = {
        (side, word): stem(texts[side][start:end].lower()) for (side, word), (start, end) in spans.items() if side is not None
    }
    own, other = ({found for (side, _), found in stems.items() if side == n} for n in (0, 1))
    shared = own & other
    return [
        kind + 2 * (side is not None and stems[side, word] in shared)
        for kind, (side, word, _) in zip(encoding.type_ids, places, strict=True)
    ]


def save_text_pairs(
    path: str | Path,
    kind: str,
    number: float,
    weights: dict[str, Array],
    head: Array,
    bias: float,
    shared: Array,
    base: str = DEFAULT_ENCODER,
    layers: Sequence[int] | None = None,
) -> None:
    """Write a trained network that `TextPairs` reads.

    `number` is T of a verifier or the weight of a reranker. `head` and `bias` are the linear layer over [CLS] and the mean.
    `shared` has a vector for each type, which is added to the embeddings of words that both texts have. `layers` are
    the layers of the encoder `base` from which the network was trained; None means all layers.
    """
    bert = bert_of(base, "cpu")
    if bert is None:
        raise RetrievalError(f"The base encoder {base!r} is not on this machine.")
    before = trained_weights(bert, layers)
    differences = Differences.between(before, {name: weights[name] for name in before})
    tensors: dict[str, npt.NDArray[Any]] = {name: np.ascontiguousarray(one) for name, one in differences.tensors.items()}
    tensors |= {_HEAD: head.astype(np.float32), _BIAS: np.array([bias], dtype=np.float32), _SHARED: shared.astype(np.float32)}
    settings = {"base": base, _NUMBER[kind]: number} | ({} if layers is None else {"layers": list(layers)})
    meta = {"format": f"convcoa {kind}", "version": _VERSION, "base_hash": differences.base_hash}
    with replacing(path) as partial:
        save_file(tensors, partial, metadata={**meta, "settings": json.dumps(settings)})


def trained_weights(bert: Bert, layers: Sequence[int] | None = None) -> dict[str, Array]:
    """The weights that training may change: all except the embeddings of words and positions.

    With `layers`, only these layers of the encoder, numbered from 0.
    """
    found = {name: bert.weights[name] for name in _ALSO}
    for name, weight in bert.weights.items():
        if name.startswith(LAYER):
            number, _, part = name.removeprefix(LAYER).partition(".")
            if layers is None:
                found[name] = weight
            elif int(number) in layers:
                found[f"{LAYER}{layers.index(int(number))}.{part}"] = weight
    return found
