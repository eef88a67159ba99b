"""The linear layers of an encoder in eight bits."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from torch import Tensor, nn

from langgraph_convcoa.errors import RetrievalError

EightBit = Literal["torchao-int8", "bitsandbytes-int8"]

EIGHT_BIT: tuple[EightBit, ...] = ("torchao-int8", "bitsandbytes-int8")

_LOUD = ("torchao", "bitsandbytes", "bitsandbytes.autograd._functions", "torch.utils._pytree")
_INSTALL = 'pip install "langgraph-convcoa[int8]", or use dtype="float32"'


def quantise(model: nn.Module, dtype: EightBit) -> None:
    """Turn the linear layers of a model into eight bits, in place. It can no longer be trained.

    The embeddings and layer norms stay as they are, so the memory falls by what the linear layers take.

    Args:
        model: A model with its weights loaded, on the device where it is used.
        dtype: "torchao-int8": W8A8, int8 weights a row and int8 activations a token, scaled as they come, which is fast on
            processors with int8 instructions. "bitsandbytes-int8": LLM.int8() (Dettmers et al. 2022), whose activations above
            6 stay in 16 bits, for GPUs; on a CPU it saves memory and costs time.

    Raises:
        RetrievalError: The package is not installed, or cannot do it on this machine.
    """
    with quietly():
        try:
            if dtype == "torchao-int8":
                _torchao(model)
            else:
                _bitsandbytes(model)
        except ImportError as error:
            raise RetrievalError(f"{dtype.removesuffix('-int8')} cannot be imported ({error}): {_INSTALL}.") from error
        # What the two packages raise where a machine has not what they need is not known here.
        except (RuntimeError, ValueError, NotImplementedError, AssertionError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
            raise RetrievalError(f'{dtype} does not work here ({reason}); use dtype="bfloat16" or "float32".') from error
    model.requires_grad_(False)


def installed() -> tuple[EightBit, ...]:
    """The types whose package is installed."""
    return tuple(dtype for dtype in EIGHT_BIT if importlib.util.find_spec(dtype.removesuffix("-int8")) is not None)


def weight_bytes(model: nn.Module) -> int:
    """Memory of a model's weights and buffers, in bytes; of an eight-bit weight, its values and scales.

    Example:
        >>> weight_bytes(nn.Linear(2, 3))
        36
    """
    # bitsandbytes keeps the scales of a weight beside it until the first use and then in the state of the layer.
    states = [getattr(layer, "state", None) for layer in model.modules()]
    scales = [getattr(holder, "SCB", None) for holder in [*model.parameters(), *states]]
    tensors = [*model.parameters(), *model.buffers(), *(scale for scale in scales if isinstance(scale, Tensor))]
    return sum(_bytes(tensor) for tensor in tensors)


@contextmanager
def quietly() -> Iterator[None]:
    """Without what the eight-bit packages say when they are loaded and, for each layer, when they compute as told."""
    loggers = [logging.getLogger(name) for name in _LOUD]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def _torchao(model: nn.Module) -> None:
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    quantize_(model, Int8DynamicActivationInt8WeightConfig())


def _bitsandbytes(model: nn.Module) -> None:
    import bitsandbytes

    for parent in list(model.modules()):
        for name, layer in parent.named_children():
            if type(layer) is not nn.Linear:
                continue
            small = bitsandbytes.nn.Linear8bitLt(
                layer.in_features, layer.out_features, layer.bias is not None, has_fp16_weights=False, threshold=6.0
            )
            small.load_state_dict(layer.state_dict())
            # Moving it is what quantises it.
            setattr(parent, name, small.to(layer.weight.device).train(layer.training))


def _bytes(tensor: Tensor) -> int:
    names = getattr(tensor, "tensor_data_names", None)
    if names:
        return sum(_bytes(getattr(tensor, name)) for name in names)
    return tensor.numel() * tensor.element_size()
