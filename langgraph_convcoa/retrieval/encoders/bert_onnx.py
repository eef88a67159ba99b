"""A BERT encoder in onnxruntime, for passages: in eight bits where the processor has instructions for it, and unpadded."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.encoders.bert import LAYER, Array, Bert, has_int8
from langgraph_convcoa.retrieval.threads import alone, cores, workers

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

# So many tokens at a time: enough for the matrix products, and their numbers stay in a core's cache.
_TOKENS = 512
# A process that has asked so often will ask on.
_ASKS_ON = 3
_MICROSOFT = "com.microsoft"
_OPSET, _IR_VERSION = 17, 8
# The largest weight in eight bits. Without the instructions (VNNI) two products are added in 16 bits, which 127 overflows.
_LARGEST, _LARGEST_WITHOUT = 127, 63
# GELU is never below -0.17: of 256 levels 16 are for what is negative.
_BELOW, _LOWEST = 16, 0.171
# What a sentence-transformers encoder may be given, from which the reach of its activations is learned.
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

Take = Callable[[list[int], Array], None]
"""Is given the places of some texts of one length and the states of their tokens, (texts, tokens, d)."""


def can_load() -> bool:
    """Whether onnxruntime can be imported: where usearch was imported before it, the import ends the process (a crash)."""
    return "onnxruntime" in sys.modules or "usearch" not in sys.modules


class OnnxBert:
    """A BERT in onnxruntime, in float32 or with its linear layers in eight bits (W8A8).

    In eight bits weights have a scale an output, activations a scale a token, so that a vector does not depend on what is
    encoded along with it. Channels that reach far are scaled down and their weights up (SmoothQuant, Xiao et al. 2023), by
    what they reach over a few sentences. Vectors of all-MiniLM-L6-v2 have a mean cosine of 0.999 to float32; the
    strangest of 7,000 windows of web pages have 0.993. Texts of one length go together, so that nothing is padded.
    """

    def __init__(self, bert: Bert, *, int8: bool, threads: int = 1) -> None:
        # Before the model is made, in case usearch is imported meanwhile.
        import onnxruntime  # noqa: F401

        self._bert = bert
        self._session = _session(_Graph(bert, int8).model(), threads)

    def vectors(self, ids: Sequence[Sequence[int]], advance: Callable[[int], None] = lambda texts: None) -> Vectors:
        """Vectors (n, d) of n lists of token ids, not normalised; `advance` is told of texts as they are done."""
        rows = np.zeros((len(ids), self._bert.dimension), dtype=np.float32)

        def take(places: list[int], states: Array) -> None:
            rows[places] = states[:, 0] if self._bert.cls else states.mean(axis=1)

        self.tokens(ids, take, advance)
        return rows

    def tokens(self, ids: Sequence[Sequence[int]], take: Take, advance: Callable[[int], None]) -> None:
        """Hand the token states of n lists of token ids to `take`, from several threads, longest first."""
        lengths: dict[int, list[int]] = {}
        for place in sorted(range(len(ids)), key=lambda i: len(ids[i]), reverse=True):
            lengths.setdefault(len(ids[place]), []).append(place)
        batches = []
        for length, places in lengths.items():
            size = max(1, _TOKENS // length)
            batches += [places[start : start + size] for start in range(0, len(places), size)]
        lock = threading.Lock()

        def run(places: list[int]) -> None:
            state = self._bert.embedded(np.array([ids[place] for place in places], dtype=np.int64))
            (found,) = self._session.run(None, {"state": state})
            take(places, np.asarray(found).reshape(state.shape))
            with lock:
                advance(len(places))

        with workers(parallel=len(batches) > 1) as each:
            each(run, batches)


class QuestionBert:
    """A BERT for questions: in numpy, and from the third on in onnxruntime, which takes half a second to begin.

    It begins beside what goes on meanwhile, so that a command that asks once pays nothing; vectors of the two differ by
    1e-6 at most. Several threads may use it.
    """

    def __init__(self, bert: Bert) -> None:
        self.bert = bert
        self._asked = 0
        self._onnx: OnnxBert | None = None
        self._lock = threading.Lock()

    def recent_vectors(self, ids: Sequence[Sequence[int]]) -> Vectors:
        """Vectors (n, d) of n lists of token ids, not normalised; those of the last 4,096 texts are kept."""
        return self.bert.recent_vectors(ids, self._vectors)

    def _vectors(self, ids: Sequence[Sequence[int]]) -> Vectors:
        with self._lock:
            self._asked += 1
            if self._asked == _ASKS_ON and has_int8() is not None and can_load():
                # Where no thread can be had, numpy goes on.
                with suppress(RuntimeError):
                    threading.Thread(target=self._begin, name="question encoder").start()
        return self.bert.vectors(ids) if self._onnx is None else self._onnx.vectors(ids)

    def _begin(self) -> None:
        try:
            self._onnx = OnnxBert(self.bert, int8=False, threads=cores())
        except Exception as error:  # noqa: BLE001 -- whatever it is, numpy goes on
            logger.warning("Questions are encoded in numpy, which takes longer: onnxruntime does not begin (%s).", error)


@dataclass(frozen=True, eq=False)
class _Watched(Bert):
    """A BERT that keeps how far the inputs of its linear layers reach, channel by channel."""

    reach: dict[str, Array] = field(default_factory=dict)

    def _linear(self, state: Array, name: str) -> Array:
        self.reach[name] = np.maximum(self.reach.get(name, np.float32(0)), np.abs(state).max(axis=0))
        return super()._linear(state, name)


def _reach(bert: Bert) -> dict[str, Array]:
    watched = _Watched(bert.weights, bert.tokenizer, bert.heads, bert.epsilon, bert.max_tokens, bert.cls)
    ids = watched.token_ids(_SENTENCES)
    watched._batch(ids, [slice(0, sum(map(len, ids)))], alone)
    return watched.reach


def _session(model: bytes, threads: int) -> InferenceSession:
    from onnxruntime import InferenceSession, SessionOptions
    from onnxruntime.capi.onnxruntime_pybind11_state import GraphOptimizationLevel

    options = SessionOptions()
    # Of passages texts are shared out between threads, of a single question the matrix products.
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    # Threads that wait would otherwise hold a core that another program may need.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # The next level fuses sums with layer norms into an operator that is slower on a processor.
    options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 3
    return InferenceSession(model, options, providers=["CPUExecutionProvider"])


class _Graph:
    """The layers of a BERT as an ONNX model, from the sum of the embeddings (b, l, d) to the token states (b * l, d)."""

    def __init__(self, bert: Bert, int8: bool) -> None:
        from onnx import helper, numpy_helper

        self._helper, self._tensor = helper, numpy_helper.from_array
        self._bert, self._int8 = bert, int8
        self._largest = _LARGEST if has_int8() else _LARGEST_WITHOUT
        self._reach = _reach(bert) if int8 else {}
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}

    def model(self) -> bytes:
        """The model, serialised."""
        from onnx import TensorProto

        helper, width = self._helper, self._bert.dimension
        self._constants["rows"] = self._tensor(np.array([-1, width], dtype=np.int64), "rows")
        self._constants["flat"] = self._tensor(np.array([-1], dtype=np.int64), "flat")
        shape = self._node("Shape", "state")
        state = self._node("Reshape", self._norm("state", "embeddings.LayerNorm"), "rows")
        number = 0
        while f"{LAYER}{number}.output.dense.weight" in self._bert.weights:
            state = self._layer(state, f"{LAYER}{number}.", shape)
            number += 1
        self._nodes.append(helper.make_node("Identity", [state], ["tokens"]))
        graph = helper.make_graph(
            self._nodes,
            "bert",
            [helper.make_tensor_value_info("state", TensorProto.FLOAT, ["texts", "length", width])],
            [helper.make_tensor_value_info("tokens", TensorProto.FLOAT, ["tokens", width])],
            list(self._constants.values()),
        )
        versions = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_MICROSOFT, 1)]
        return bytes(helper.make_model(graph, opset_imports=versions, ir_version=_IR_VERSION).SerializeToString())

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
        """A linear layer, its input added, normalised."""
        (product,) = self._products(state, [f"{name}.dense"])
        found = self._node("Add", self._node("Add", product, self._weight(f"{name}.dense.bias")), before)
        return self._norm(found, f"{name}.LayerNorm")

    def _norm(self, state: str, name: str) -> str:
        weights = self._weight(f"{name}.weight"), self._weight(f"{name}.bias")
        return self._node("LayerNormalization", state, *weights, epsilon=self._bert.epsilon)

    def _products(self, state: str, names: Sequence[str]) -> list[str]:
        """The products of the token states with several weights, without the biases."""
        weights = [self._bert.weights[f"{name}.weight"].T for name in names]
        if not self._int8:
            return [self._node("MatMul", state, self._constant(n, w)) for n, w in zip(names, weights, strict=True)]
        if "attention" not in names[0] and names[0].endswith(".output.dense"):
            # After GELU; scaling would move its least value.
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
            scales = np.maximum(np.abs(weight).max(axis=0), 1e-9) / np.float32(self._largest)
            whole = np.rint(weight / scales).astype(np.int8)
            stored = self._constant(name, whole), one, self._constant(f"{name}.scale", scales)
            found.append(
                self._node("Mul", self._node("MatMulIntegerToFloat", values, *stored, offset, domain=_MICROSOFT), scale)
            )
        return found

    def _quantised(self, state: str, scale: str, zero: int) -> str:
        """Token states as bytes, by the scale of each token, with one byte for zero."""
        scales = self._node("Reshape", scale, "flat")
        value = self._tensor(np.array([zero], dtype=np.uint8))
        zeros = self._node("ConstantOfShape", self._node("Shape", scales), value=value)
        return self._node("QuantizeLinear", state, scales, zeros, axis=0)

    def _weight(self, name: str) -> str:
        return self._constant(name, self._bert.weights[name])

    def _constant(self, name: str, value: Any) -> str:
        if name not in self._constants:
            self._constants[name] = self._tensor(np.ascontiguousarray(value).reshape(np.shape(value)), name)
        return name

    def _node(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        output = f"{kind}.{len(self._nodes)}"
        self._nodes.append(self._helper.make_node(kind, list(inputs), [output], domain=domain, **attributes))
        return output
