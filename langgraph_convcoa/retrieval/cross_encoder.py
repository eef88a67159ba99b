"""A small trained network that reads two texts together: in onnxruntime, without torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.files import replacing
from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER
from langgraph_convcoa.retrieval.encoders.bert import LAYER, Array, Bert, OnnxBert, bert_of
from langgraph_convcoa.retrieval.query.query_encoder import Differences
from langgraph_convcoa.text.words import stem

if TYPE_CHECKING:
    from tokenizers import Encoding

_VERSION = "2"
_NUMBER = {"verifier": "threshold", "reranker": "weight"}  # The number that each kind of network is saved with.
_TOKENS = 192
LONGEST = 4_000  # Characters of a text that are read.
_HEAD, _BIAS, _SHARED = "head.weight", "head.bias", "shared.weight"
_TYPES = "embeddings.token_type_embeddings.weight"
_ALSO = (_TYPES, "embeddings.LayerNorm.weight", "embeddings.LayerNorm.bias")


class TextPairs:
    """Some layers of the default encoder, trained to read two texts, with a linear layer over [CLS] and the mean.

    Words that stand in both texts get their own token types (`token_types`). The file has the differences from the encoder's
    weights in eight bits. The linear layers compute in eight bits (`OnnxBert`). Threads may share an object.

    Args:
        path: A file that `save_text_pairs` wrote.
        kind: What the network was trained for: "verifier" or "reranker".

    Attributes:
        number: The threshold T of a verifier, or the weight of a reranker.

    Raises:
        RetrievalError: The file is missing, damaged, of another kind, or the encoder is not on this machine.
    """

    def __init__(self, path: Path, kind: str) -> None:
        from tokenizers import Tokenizer

        try:
            with safe_open(path, framework="numpy") as stored:
                meta = stored.metadata() or {}
                tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 - no mapping
            if (meta.get("format"), meta.get("version")) != (f"convcoa {kind}", _VERSION):
                raise ValueError(f"it is version {meta.get('version')} of {meta.get('format')!r}")
            settings = json.loads(meta["settings"])
            base, layers, self.number = str(settings["base"]), settings.get("layers"), float(settings[_NUMBER[kind]])
            self._head, self._bias = tensors.pop(_HEAD).astype(np.float64), float(tensors.pop(_BIAS)[0])
            shared = tensors.pop(_SHARED)
            bert = bert_of(base, "cpu")
            if bert is None:
                raise RetrievalError(f'The {kind} needs the encoder {base!r}: pip install "langgraph-convcoa[offline]".')
            changed = Differences(tensors, meta["base_hash"]).added_to(trained_weights(bert, layers), base)
        except (OSError, SafetensorError, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            raise RetrievalError(f'The {kind} {path} cannot be read ({error}); use {kind}="default".') from error
        changed[_TYPES] = np.concatenate([changed[_TYPES], changed[_TYPES] + shared])
        kept = {name: weight for name, weight in bert.weights.items() if not name.startswith(LAYER)}
        self._network = OnnxBert(replace(bert, weights={**kept, **changed}), int8=True, pooling="both")
        if self._head.shape != (self._network.dimension,):
            raise RetrievalError(f"The {kind} {path} does not fit the encoder {base!r}; train it again.")
        self._tokenizer = Tokenizer.from_str(bert.tokenizer.to_str())
        self._tokenizer.enable_truncation(min(_TOKENS, bert.max_tokens), strategy="longest_first")

    def logits(self, firsts: Sequence[str], seconds: Sequence[str]) -> npt.NDArray[np.float64]:
        """The logit of each pair, (n,)."""
        pairs = [(first[:LONGEST], second[:LONGEST]) for first, second in zip(firsts, seconds, strict=True)]
        encodings = self._tokenizer.encode_batch(pairs)
        types = [token_types(one, *pair) for one, pair in zip(encodings, pairs, strict=True)]
        rows = self._network.vectors([one.ids for one in encodings], types=types)
        found: npt.NDArray[np.float64] = rows.astype(np.float64) @ self._head + self._bias
        return found


def token_types(encoding: Encoding, first: str, second: str) -> list[int]:
    """The types of a pair's tokens: 0 in the first text, 1 in the second; plus 2 if the other has a word of the same stem.

    Words that only one text has say much, and a network of this size is slow to learn that from attention.

    Args:
        encoding: The tokens of the pair.
        first: The first text.
        second: The second text.
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

    Args:
        path: The file.
        kind: "verifier" or "reranker".
        number: The threshold T of a verifier, or the weight of a reranker.
        weights: Weights by their names in the encoder.
        head: The linear layer over [CLS] and the mean.
        bias: The bias of that layer.
        shared: A vector for each type, added to the embeddings of types 0 and 1 for words that both texts have.
        base: The encoder.
        layers: The layers of the encoder that the network's layers were made of; all when None.
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
