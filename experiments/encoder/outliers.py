"""Outliers in the activations of an encoder, which softmax_1 prevents (Hu et al. 2024; Pan et al. 2024b, sec. 4.1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from experiments.encoder.outlier_free import transformer_of
from langgraph_convcoa.errors import RetrievalError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_ATTENTION_NAMES = ("attention", "attn")
_FEATURES = ("input_ids", "attention_mask", "token_type_ids")


@dataclass(frozen=True)
class Outliers:
    """Norm and kurtosis of an encoder's activations, over its layers and the tokens of texts (Bondarenko et al. 2023).

    The norm is the largest absolute value of all layers, averaged over batches. It is taken at the outputs of the attention
    (with residual and layer norm) or of the whole layers. The kurtosis is averaged over layers and batches.
    """

    attention_norm: float
    attention_kurtosis: float
    layer_norm: float
    layer_kurtosis: float


def kurtosis(values: Tensor) -> float:
    """E[((x - mean) / standard deviation)^4] over all numbers of a tensor; 3 for a normal distribution.

    Example:
        >>> kurtosis(torch.tensor([-1.0, 1.0])), kurtosis(torch.tensor([0.0] * 99 + [9.0])) > 90
        (1.0, True)
    """
    centred = values.double().flatten() - values.double().mean()
    variance = centred.square().mean()
    return float(centred.pow(4).mean() / variance.square().clamp_min(torch.finfo(torch.float64).tiny))


@torch.no_grad()
def measure_outliers(model: SentenceTransformer, texts: Sequence[str], *, batch_size: int = 32) -> Outliers:
    """Measure the outliers of an encoder with a BERT-family transformer on texts. Padding does not count."""
    transformer = transformer_of(model)
    layers = _layers(transformer)
    training = model.training
    model.eval()
    batches: dict[str, list[tuple[float, float]]] = {"attention": [], "layer": []}
    try:
        for start in range(0, len(texts), batch_size):
            # The name of the method has moved between releases of sentence-transformers.
            prepare = getattr(model, "preprocess", model.tokenize)
            features = prepare(list(texts[start : start + batch_size]))
            features = {name: value.to(model.device) for name, value in features.items() if name in _FEATURES}
            seen = features["attention_mask"].bool()
            attentions, wholes = ([pair[place] for pair in layers] for place in (1, 0))
            with _recorded(attentions) as attention, _recorded(wholes) as whole:
                transformer(**features)
            for place, states in (("attention", attention), ("layer", whole)):
                tokens = [state[seen] for state in states]
                norm, mean = max(float(x.abs().max()) for x in tokens), sum(map(kurtosis, tokens)) / len(tokens)
                batches[place].append((norm, mean))
    finally:
        model.train(training)
    return Outliers(*_means(batches["attention"]), *_means(batches["layer"]))


def _layers(model: nn.Module) -> list[tuple[nn.Module, nn.Module]]:
    """Each layer with its attention."""
    for stack in model.modules():
        if isinstance(stack, nn.ModuleList) and len(stack):
            found = [(layer, getattr(layer, name)) for layer in stack for name in _ATTENTION_NAMES if hasattr(layer, name)]
            if len(found) == len(stack):
                return found
    raise RetrievalError(f"The layers of {type(model).__name__} were not found; outliers are measured of BERT-family models.")


@contextmanager
def _recorded(modules: Sequence[nn.Module]) -> Iterator[list[Tensor]]:
    """The outputs (batch, n, d) of modules, in the order in which they are computed."""
    outputs: list[Tensor] = []

    def record(_module: nn.Module, _arguments: Any, output: Any) -> None:
        outputs.append((output[0] if isinstance(output, tuple) else output).detach())

    handles = [module.register_forward_hook(record) for module in modules]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def _means(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return sum(pair[0] for pair in pairs) / len(pairs), sum(pair[1] for pair in pairs) / len(pairs)
