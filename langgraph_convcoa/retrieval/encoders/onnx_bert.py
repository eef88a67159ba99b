"""A BERT in onnxruntime, in float32 or with its linear layers in eight bits."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from langgraph_convcoa.errors import first_line
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.encoders.bert import LAYER, Array, Bert
from langgraph_convcoa.retrieval.encoders.recent import RecentValues
from langgraph_convcoa.retrieval.threads import cores

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

Pooling = Literal["cls", "mean", "both"]

_TOKENS = 512
"""Tokens of a batch: enough for fast matrix products, few enough for a core's cache."""
_RECENT = 4096
_MICROSOFT = "com.microsoft"
_OPSET, _IR_VERSION = 17, 8
_LARGEST = 127
# GELU is never below -0.17: 16 of the 256 levels stand for negative values.
_BELOW, _LOWEST = 16, 0.171
# Sentences of many kinds, which show how large the activations of a model become.
_SENTENCES = (
    "What is the name of the first book that she wrote, and when was it published?",
    "The company said on Tuesday that revenue rose by 12.4% to $3,500 million in the third quarter of 2019 (see note 7).",
    "Photosynthesis converts light energy into chemical energy; plants, algae and cyanobacteria release oxygen as they do it.",
    "In 1865 the General Assembly, under the leadership of John Smith, passed a law that the king refused to sign.",
    "def add(a, b): return a + b  # see https://example.com/index.html and README.md for details",
    "You can apply online if you are over 18 and live in the United Kingdom; otherwise call us on 0800 123456.",
    "“I don't know,” he said, “but they were there before us!” Then Tom laughed, took his hat and left without a word.",
    "* Step 1: open the menu. * Step 2: choose Settings > Network. Error 404: not found. Price: 12,99 € | Weight: 3.5 kg",
    "El perro corre por la calle. Der Zug fährt um 8:15 Uhr ab. Москва — столица России. 日本語の文章です。",
)

logger = logging.getLogger(__name__)


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
        self._recent = RecentValues[bytes, Array](_RECENT)

    def vectors(
        self,
        ids: Sequence[Sequence[int]],
        types: Sequence[Sequence[int]] | None = None,
    ) -> Vectors:
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

        def encode(new: list[bytes]) -> Vectors:
            return self.vectors([np.frombuffer(key, dtype=np.int32).tolist() for key in new])

        keys = [np.array(one, dtype=np.int32).tobytes() for one in ids]
        found = self._recent.of(keys, encode)
        return np.stack([found[key] for key in keys]) if keys else self.vectors([])


def onnx_bert(name: str, bert: Bert, *, int8: bool, threads: int = 1) -> OnnxBert | None:
    """The `OnnxBert` of a model, made once. None, with a warning, if onnxruntime cannot compute the model."""
    key = int8, threads
    with bert.lock:
        if key not in bert.sessions:
            try:
                bert.sessions[key] = OnnxBert(bert, int8=int8, threads=threads)
            except Exception as error:  # noqa: BLE001 -- onnxruntime raises many types
                logger.warning("onnxruntime cannot compute the encoder %r (%s); torch computes it.", name, first_line(error))
                bert.sessions[key] = None
        found: OnnxBert | None = bert.sessions[key]
    return found


def _reach(bert: Bert) -> dict[str, Array]:
    """The largest absolute input of each linear layer over a few sentences, channel by channel."""
    graph = _Graph(bert, "mean", None, watch=True)
    session = graph.session(1)
    found = [session.run(graph.watched, {"state": bert.embedded(np.array([ids]))}) for ids in bert.token_ids(_SENTENCES)]
    return {name: np.max(reached, axis=0) for name, *reached in zip(graph.watched, *found, strict=True)}


class _Graph:
    """The layers of a BERT as an ONNX model, from the sum of the embeddings (b, l, d) to the pooled vectors (b, d)."""

    def __init__(self, bert: Bert, pooling: Pooling, reach: dict[str, Array] | None, watch: bool = False) -> None:
        from onnx import helper

        self._helper, self._bert, self._reach, self._watch = helper, bert, reach, watch
        self._nodes: list[Any] = []
        self._constants: dict[str, npt.NDArray[Any]] = {}
        self.watched: list[str] = []
        self._constant("rows", np.array([-1, bert.dimension]))
        self._constant("flat", np.array([-1]))
        shape = self._node("Shape", "state")
        state = self._node("Reshape", self._norm("state", "embeddings.LayerNorm"), "rows")
        for number in range(bert.layers):
            state = self._layer(state, f"{LAYER}{number}.", shape)
        tokens = self._node("Reshape", state, shape)
        first = self._node("Gather", tokens, self._constant("first", np.array(0)), axis=1)
        mean = self._node("ReduceMean", tokens, axes=[1], keepdims=0)
        parts = {"cls": [first], "mean": [mean], "both": [first, mean]}[pooling]
        self._nodes.append(helper.make_node("Concat", parts, ["vectors"], axis=1))

    def session(self, threads: int) -> InferenceSession:
        from onnx import TensorProto, numpy_helper
        from onnxruntime import GraphOptimizationLevel, InferenceSession, OrtValue, SessionOptions

        helper = self._helper
        options = SessionOptions()
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
        self._values = [OrtValue.ortvalue_from_numpy(value) for value in large.values()]
        options.add_external_initializers(list(large), self._values)
        inputs = [helper.make_tensor_value_info("state", TensorProto.FLOAT, ["texts", "length", self._bert.dimension])]
        outputs = [helper.make_tensor_value_info("vectors", TensorProto.FLOAT, None)]
        outputs += [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in self.watched]
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
            largest = self._node("ReduceMax", self._node("Abs", state), axes=[0], keepdims=0)
            self._nodes.append(self._helper.make_node("Identity", [largest], [names[0]]))
            self.watched.append(names[0])
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
        values = self._quantised(state, scale, zero)
        offset, one = self._constant(f"zero.{zero}", np.uint8(zero)), self._constant("one", np.float32(1))
        found = []
        for name, weight in zip(names, weights, strict=True):
            whole, scales = _quantised_weight(weight)
            stored = self._constant(name, whole), one, self._constant(f"{name}.scale", scales)
            product = self._node("MatMulIntegerToFloat", values, *stored, offset, domain=_MICROSOFT)
            found.append(self._node("Mul", product, scale))
        return found

    def _quantised(self, state: str, scale: str, zero: int) -> str:
        """Token states as bytes, by the scale of each token."""
        from onnx import numpy_helper

        scales = self._node("Reshape", scale, "flat")
        value = numpy_helper.from_array(np.array([zero], dtype=np.uint8))
        zeros = self._node("ConstantOfShape", self._node("Shape", scales), value=value)
        return self._node("QuantizeLinear", state, scales, zeros, axis=0)

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
    """A weight (inputs, outputs) as signed bytes, and one scale for each output.

    Processors without VNNI add two neighbouring products in 16 bits. 255 (w_1 + w_2) stays below 2^15 if w_1 + w_2 is at most
    128 in absolute value, so the scale also bounds the sums of neighbours.
    """
    even = len(weight) // 2 * 2
    pairs = np.abs(weight[0:even:2] + weight[1:even:2]).max(axis=0, initial=0)
    scales = np.maximum(np.maximum(np.abs(weight).max(axis=0), pairs), 1e-9) / np.float32(_LARGEST)
    return np.rint(weight / scales).astype(np.int8), scales.astype(np.float32)
