"""A BERT encoder in numpy, for questions: a few short texts are encoded before torch would have been imported."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.encoders.loading import check_files, location_of
from langgraph_convcoa.retrieval.encoders.recent import RecentValues
from langgraph_convcoa.retrieval.threads import Each, alone, cores, workers

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Array = npt.NDArray[np.float32]

# So many tokens at a time, whose numbers stay in a core's cache.
_TOKENS = 512
# Other devices than the processor, which sentence-transformers would take: of NVIDIA, AMD, Intel and Ascend.
_ACCELERATORS = ("nvidiactl", "nvidia0", "dxg", "kfd", "accel", "davinci0")
_FEW = 24
# So many rows at a time stay in a core's cache for all steps of the activation.
_ROWS = 16
# From so many tokens on, sharing them out takes less time than it saves.
_SHARED = 64
LAYER = "encoder.layer."
"""What the names of the layers' weights begin with."""

_EMBEDDINGS = ("word_embeddings", "position_embeddings", "token_type_embeddings")
_LINEAR = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
)
_READS = {"max_seq_length", "do_lower_case", "transformer_task", "modality_config", "module_output_name"}
_NORMS = ("attention.output.LayerNorm", "output.LayerNorm")
# The normal distribution function is 1 / (1 + exp(x p(x^2))) with this polynomial p, its highest power first, fitted so that
# the largest error of x times it is least. It is 0 or 1 where the square is larger.
_NORMAL = (-3.61124976e-09, 2.6689357e-07, -7.93823098e-06, 0.000110480404, 6.62597055e-05, -0.0726685667, -1.59576843)
_LARGEST_SQUARE = 30
# The vectors of so many texts are kept.
_KEPT = 4096


@dataclass(frozen=True, eq=False)
class Bert:
    """A BERT with its pooling, as the files of a sentence-transformers model describe it; float32, on the processor.

    Its vectors have a cosine of more than 0.9999 to those of sentence-transformers in float32 or bfloat16.
    """

    weights: Mapping[str, Array]
    tokenizer: Tokenizer  # Without truncation and padding.
    heads: int
    epsilon: float
    max_tokens: int
    cls: bool  # Pools by the first token, else by the mean.
    _recent: RecentValues[bytes, Array] = field(default_factory=lambda: RecentValues(_KEPT), init=False, repr=False)

    @classmethod
    def open(cls, folder: str | Path) -> Bert | None:
        """The model in a folder; None where it is of another kind, so that sentence-transformers must load it.

        RetrievalError where its files are not those that were saved.
        """
        place = Path(folder)
        try:
            state = (place / "model.safetensors").stat()
        except OSError:
            return None
        key = (str(place), state.st_mtime_ns, state.st_size)
        if (found := _OPENED.get(key)) is None:
            check_files(place)
            try:
                found = _read(place)
            # Whatever is amiss with the files is sentence-transformers' to tell.
            except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError):
                found = None
            if found is not None:
                _OPENED[key] = found
        return found

    @property
    def dimension(self) -> int:
        """Length d of a vector."""
        return int(self.weights["embeddings.word_embeddings.weight"].shape[1])

    def learned(self) -> dict[str, Array]:
        """The weights of the layers, by name: all but the embeddings."""
        return {name: weight for name, weight in self.weights.items() if name.startswith(LAYER)}

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of texts with the special tokens, cut off at `max_tokens`."""
        return [self.cut(found.ids) for found in self.tokenizer.encode_batch_fast([text.strip() for text in texts])]

    def cut(self, ids: list[int]) -> list[int]:
        """Token ids of a text, at most `max_tokens`; the last one stays."""
        return ids if len(ids) <= self.max_tokens else [*ids[: self.max_tokens - 1], ids[-1]]

    def embedded(self, ids: npt.NDArray[np.int64]) -> Array:
        """The sums of the embeddings (..., l, d) of token ids (..., l), not normalised."""
        word, position, kind = (self.weights[f"embeddings.{name}.weight"] for name in _EMBEDDINGS)
        return np.asarray(word[ids] + position[: ids.shape[-1]] + kind[0])

    def recent_vectors(
        self, ids: Sequence[Sequence[int]], vectors: Callable[[Sequence[Sequence[int]]], Vectors] | None = None
    ) -> Vectors:
        """`vectors` of texts that recur, such as the turns of a conversation: those of the last 4,096 are kept."""
        keys = [np.array(one, dtype=np.int32).tobytes() for one in ids]
        compute = vectors or self.vectors

        def encode(new: list[bytes]) -> Vectors:
            return compute([np.frombuffer(key, dtype=np.int32).tolist() for key in new])

        found = self._recent.of(keys, encode)
        return np.stack([found[key] for key in keys]) if keys else self.vectors([])

    def vectors(self, ids: Sequence[Sequence[int]]) -> Vectors:
        """Vectors (n, d) of n lists of token ids, not normalised."""
        rows, parts, start = np.zeros((len(ids), self.dimension), dtype=np.float32), [], 0
        while start < len(ids):
            stop, tokens = start + 1, len(ids[start])
            while stop < len(ids) and tokens + len(ids[stop]) <= _TOKENS:
                tokens, stop = tokens + len(ids[stop]), stop + 1
            parts.append(slice(start, stop))
            start = stop

        if len(parts) == 1:
            # The tokens of one part are shared out, those of several part by part.
            tokens = sum(map(len, ids))
            threads = cores() if tokens >= _SHARED else 1
            with workers(parallel=threads > 1) as each:
                cuts = np.linspace(0, tokens, threads + 1).astype(int).tolist()
                rows[:] = self._batch(ids, [slice(*pair) for pair in itertools.pairwise(cuts)], each)
            return rows

        def encode(part: slice) -> None:
            rows[part] = self._batch(ids[part], [slice(0, sum(map(len, ids[part])))], alone)

        with workers(parallel=True) as each:
            each(encode, parts)
        return rows

    def _batch(self, ids: Sequence[Sequence[int]], shares: Sequence[slice], each: Each) -> Array:
        """The texts' tokens one after another, without padding; only attention is text by text."""
        lengths = np.array([len(one) for one in ids])
        edges = np.concatenate([[0], np.cumsum(lengths)])
        state = np.concatenate([self.embedded(np.asarray(one, dtype=np.int64)) for one in ids])
        state = self._norm(state, "embeddings.LayerNorm")
        number = 0
        while f"{LAYER}{number}.output.dense.weight" in self.weights:
            self._layer(state, f"{LAYER}{number}.", edges.tolist(), shares, each)
            number += 1
        if self.cls:
            return np.asarray(state[edges[:-1]])
        return np.asarray(np.add.reduceat(state, edges[:-1], axis=0) / lengths[:, None], dtype=np.float32)

    def _layer(self, state: Array, layer: str, edges: list[int], shares: Sequence[slice], each: Each) -> None:
        """One layer, in place, each share of the tokens by itself once all have their queries, keys and values."""
        names = [f"{layer}attention.self.{part}" for part in ("query", "key", "value")]
        parts = [np.empty_like(state) for _ in names]
        scale = np.float32((state.shape[1] // self.heads) ** -0.5)

        def project(share: slice) -> None:
            for name, part in zip(names, parts, strict=True):
                part[share] = self._linear(state[share], name)
            parts[0][share] *= scale

        def attend(share: slice) -> None:
            mixed = np.empty_like(state[share])
            for start, stop in itertools.pairwise(edges):
                first, last = max(start, share.start), min(stop, share.stop)
                if first < last:
                    mixed[first - share.start : last - share.start] = self._attention(parts, slice(first, last), start, stop)
            attended = self._linear(mixed, f"{layer}attention.output.dense")
            attended += state[share]
            attended = self._norm(attended, f"{layer}attention.output.LayerNorm")
            found = self._linear(_gelu(self._linear(attended, f"{layer}intermediate.dense")), f"{layer}output.dense")
            found += attended
            state[share] = self._norm(found, f"{layer}output.LayerNorm")

        each(project, shares)
        each(attend, shares)

    def _attention(self, parts: Sequence[Array], tokens: slice, start: int, stop: int) -> Array:
        """What some tokens of the text from start to stop take from it, (n, d)."""
        spans = (tokens, slice(start, stop), slice(start, stop))
        query, key, value = (
            part[span].reshape(span.stop - span.start, self.heads, -1).transpose(1, 0, 2)
            for part, span in zip(parts, spans, strict=True)
        )
        likeness = query @ key.transpose(0, 2, 1)
        likeness -= likeness.max(axis=-1, keepdims=True)
        np.exp(likeness, out=likeness)
        mixed = likeness @ value
        # There are fewer numbers in it than in the weights, whose sums are a product too.
        mixed /= (likeness @ np.ones(stop - start, dtype=np.float32))[..., None]
        return np.asarray(mixed.transpose(1, 0, 2).reshape(tokens.stop - tokens.start, -1))

    def _linear(self, state: Array, name: str) -> Array:
        weight = self.weights[f"{name}.weight"]
        # Of few tokens the weights are the larger side, and are read faster as they lie.
        found: Array = state @ weight.T if len(state) > _FEW else np.ascontiguousarray((weight @ state.T).T)
        found += self.weights[f"{name}.bias"]
        return found

    def _norm(self, state: Array, name: str) -> Array:
        state -= state.mean(axis=1, keepdims=True)
        spread = np.einsum("ij,ij->i", state, state) / np.float32(state.shape[1])
        state /= np.sqrt(spread + np.float32(self.epsilon))[:, None]
        state *= self.weights[f"{name}.weight"]
        state += self.weights[f"{name}.bias"]
        return state


_OPENED: WeakValueDictionary[tuple[str, int, int], Bert] = WeakValueDictionary()


def bert_of(name: str, device: str | None) -> Bert | None:
    """The model of a name or folder, where numpy can compute it as sentence-transformers would on this device; else None.

    A model of the hub must have been downloaded before. With an accelerator beside the processor, sentence-transformers
    chooses the device and computes.
    """
    if device not in (None, "cpu") or (device is None and _has_accelerator()):
        return None
    folder = location_of(name)
    return None if folder is None else Bert.open(folder)


def has_bfloat16() -> bool | None:
    """Whether this processor multiplies in bfloat16; None where only torch can tell."""
    return _has("avx512_bf16", "amx_bf16")


def has_int8() -> bool | None:
    """Whether this processor multiplies in eight bits (VNNI); None where that is not known."""
    return _has("avx512_vnni", "avx_vnni")


def _has(*instructions: str) -> bool | None:
    try:
        flags = set(Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split())
    except OSError:
        return None
    return bool(flags.intersection(instructions)) if "sse2" in flags else None


def _has_accelerator() -> bool:
    return not sys.platform.startswith("linux") or any(Path("/dev", name).exists() for name in _ACCELERATORS)


def _read(folder: Path) -> Bert | None:
    """The model in a folder; None, or an error of the files, where it is not of the kind that is computed here."""
    from tokenizers import Tokenizer

    kinds = [str(module["type"]).rpartition(".")[2] for module in _json(folder / "modules.json")]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        return None
    transformer, pooling = (folder / module["path"] for module in _json(folder / "modules.json")[:2])
    if transformer != folder or not _plain_prompts(folder / "config_sentence_transformers.json"):
        return None
    config, reads = _json(folder / "config.json"), _json(folder / "sentence_bert_config.json")
    # Newer releases of sentence-transformers keep it with the tokenizer.
    limit = reads.get("max_seq_length") or _json(folder / "tokenizer_config.json")["model_max_length"]
    limit = min(limit, config["max_position_embeddings"])
    pools = _json(pooling / "config.json")
    ways = {
        name.removeprefix("pooling_mode_") for name, on in pools.items() if name.startswith("pooling_mode_") and on is True
    }
    way = pools["pooling_mode"] if "pooling_mode" in pools else "+".join(ways)
    fits = (
        (config["model_type"], config["hidden_act"]) == ("bert", "gelu")
        and config.get("position_embedding_type", "absolute") in ("absolute", None)
        and config.get("convcoa_attention", "softmax") == "softmax"
        and not config.get("is_decoder")
        and set(reads) <= _READS
        and not reads.get("do_lower_case")
        and reads.get("transformer_task", "feature-extraction") == "feature-extraction"
        and way in ("mean", "mean_tokens", "cls", "cls_token")
        and limit >= 2
        and config["hidden_size"] % config["num_attention_heads"] == 0
    )
    try:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception:  # noqa: BLE001 -- it raises nothing narrower
        return None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    # A start and an end, and nothing else that a cut could take away.
    if not fits or len(tokenizer.encode("").ids) != 2:
        return None
    with safe_open(folder / "model.safetensors", framework="numpy") as stored:
        weights = _mapped(folder / "model.safetensors", _names(config["num_hidden_layers"]))
        if len([name for name in stored.keys() if name.startswith(LAYER)]) != len(weights) - 5:  # noqa: SIM118 - no mapping
            return None
    least = {"word_embeddings": tokenizer.get_vocab_size(), "position_embeddings": limit, "token_type_embeddings": 1}
    if any(len(weights[f"embeddings.{name}.weight"]) < rows for name, rows in least.items()):
        return None
    if any(w.dtype != np.float32 or w.shape != _shape(name, len(w), config) for name, w in weights.items()):
        return None
    heads, epsilon = int(config["num_attention_heads"]), float(config["layer_norm_eps"])
    return Bert(weights, tokenizer, heads, epsilon, int(limit), way.startswith("cls"))


def _names(layers: int) -> list[str]:
    """The weights' names: five of the embeddings, then those of the layers."""
    inner = [f"{LAYER}{layer}.{part}" for layer in range(layers) for part in (*_LINEAR, *_NORMS)]
    both = [f"{part}.{kind}" for part in ("embeddings.LayerNorm", *inner) for kind in ("weight", "bias")]
    return [f"embeddings.{name}.weight" for name in _EMBEDDINGS] + both


def _shape(name: str, rows: int, config: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape that a weight must have; of an embedding any number of rows will do."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    if name.startswith("embeddings.") and "LayerNorm" not in name:
        return rows, hidden
    outputs = inner if "intermediate" in name else hidden
    if "LayerNorm" in name or name.endswith("bias"):
        return (outputs,)
    return outputs, hidden if "attention" in name or "intermediate" in name else inner


def _mapped(path: Path, names: Sequence[str]) -> dict[str, Array]:
    """Tensors of a file that safetensors has checked, as read-only maps of it: of the embeddings few rows are ever read."""
    content = np.memmap(path, dtype=np.uint8, mode="r").view(np.ndarray)
    start = 8 + int.from_bytes(content[:8].tobytes(), "little")
    head = json.loads(content[8:start].tobytes())
    found = {}
    for name in names:
        first, last = head[name]["data_offsets"]
        if head[name]["dtype"] != "F32":
            raise ValueError(name)
        # Older files may begin anywhere.
        found[name] = np.require(content[start + first : start + last].view(np.float32), requirements="A")
        found[name] = found[name].reshape(head[name]["shape"])
    return found


def _plain_prompts(path: Path) -> bool:
    """Whether texts are encoded as they are, with nothing before them."""
    settings = _json(path) if path.is_file() else {}
    return not settings.get("default_prompt_name") and not any((settings.get("prompts") or {}).values())


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _gelu(x: Array) -> Array:
    """GELU, x times the normal distribution function, in place and within 1e-6."""
    first, second, *others = map(np.float32, _NORMAL)
    squares, exponents = np.empty((2, _ROWS, x.shape[1]), dtype=np.float32)
    with np.errstate(over="ignore"):
        for start in range(0, len(x), _ROWS):
            block = x[start : start + _ROWS]
            square, exponent = squares[: len(block)], exponents[: len(block)]
            np.multiply(block, block, out=square)
            np.minimum(square, _LARGEST_SQUARE, out=square)
            np.multiply(square, first, out=exponent)
            exponent += second
            for factor in others:
                exponent *= square
                exponent += factor
            exponent *= block
            np.exp(exponent, out=exponent)
            exponent += 1
            block /= exponent
    return x
