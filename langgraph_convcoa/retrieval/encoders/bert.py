"""The files of a BERT that sentence-transformers saved: weights, tokenizer and pooling, read without torch."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from langgraph_convcoa.retrieval.array_file import mapped_tensors
from langgraph_convcoa.retrieval.encoders.loading import check_files, location_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Array = npt.NDArray[np.float32]

LAYER = "encoder.layer."
"""Prefix of the names of the layers' weights."""
# Devices of NVIDIA, AMD, Intel and Ascend, which sentence-transformers would use.
_ACCELERATORS = ("nvidiactl", "nvidia0", "dxg", "kfd", "accel", "davinci0")
_EMBEDDINGS = ("word_embeddings", "position_embeddings", "token_type_embeddings")
_LINEAR = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
)
_NORMS = ("attention.output.LayerNorm", "output.LayerNorm")
_READS = {"max_seq_length", "do_lower_case", "transformer_task", "modality_config", "module_output_name"}


@dataclass(frozen=True, eq=False)
class Bert:
    """The weights of a BERT by name, memory-mapped, with its tokenizer and pooling."""

    weights: Mapping[str, Array]
    tokenizer: Tokenizer  # Without truncation and padding.
    heads: int
    epsilon: float
    max_tokens: int
    cls: bool  # True to pool by the first token, False by the mean.
    sessions: dict[tuple[bool, int], Any] = field(default_factory=dict, init=False, repr=False)
    """The networks that `onnx_bert` made of the model; all users of the model share them."""
    lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @classmethod
    def open(cls, folder: str | Path) -> Bert | None:
        """The model in a folder; None if it is of another kind, so that sentence-transformers must load it.

        Raises RetrievalError if the files differ from the saved files.
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
            # sentence-transformers will say what is wrong with the files. The tokenizer raises no narrower error.
            except Exception:  # noqa: BLE001
                return None
            _OPENED[key] = found
        return found

    @property
    def dimension(self) -> int:
        """Length d of a vector."""
        return int(self.weights["embeddings.word_embeddings.weight"].shape[1])

    @property
    def layers(self) -> int:
        """Number of layers."""
        return sum(name.endswith("attention.self.query.weight") for name in self.weights)

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
    """The BERT of a name or folder; None if it is of another kind or should be computed on another device than the processor.

    With `device` None, sentence-transformers chooses the device if the machine has an accelerator.
    """
    if device not in (None, "cpu") or (device is None and _has_accelerator()):
        return None
    folder = location_of(name)
    return None if folder is None else Bert.open(folder)


def _has_accelerator() -> bool:
    return not sys.platform.startswith("linux") or any(Path("/dev", name).exists() for name in _ACCELERATORS)


def _read(folder: Path) -> Bert:
    """Read the model in a folder; raises any error if `OnnxBert` cannot compute this kind of model."""
    from tokenizers import Tokenizer

    modules = _json(folder / "modules.json")
    kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    transformer, pooling = (folder / module["path"] for module in modules[:2])
    config, reads = _json(folder / "config.json"), _json(folder / "sentence_bert_config.json")
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
        and _plain_prompts(folder / "config_sentence_transformers.json")
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


def _plain_prompts(path: Path) -> bool:
    """True if texts are encoded without a prompt before them."""
    settings = _json(path) if path.is_file() else {}
    return not settings.get("default_prompt_name") and not any((settings.get("prompts") or {}).values())


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
