"""OutEffHop attention in transformers models: softmax_1 in place of softmax (Hu et al. 2024; Pan et al. 2024b, section 4.1).

The weights of a softmax must sum to 1. Heads without a task give all weight to a few tokens, which grow outliers in the
activations. With softmax_1 all weights may be 0. It is computed as a softmax with one more key and value that are zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.encoders.bert import location_of
from langgraph_convcoa.retrieval.encoders.sentence_transformer import quiet

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Attention = Literal["softmax", "softmax1"]
ATTENTIONS: tuple[Attention, ...] = ("softmax", "softmax1")
_REGISTERED = "convcoa_softmax1"
_PLAIN = "sdpa"
# A key in config.json. transformers does not save the attention of a model there, but keeps keys that it does not know.
_KEY = "convcoa_attention"


def softmax_1_attention(
    module: nn.Module | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """softmax_1(scaling Q K^T) V with PyTorch's fused kernel, in the form that transformers' `AttentionInterface` asks for.

    Takes (batch, heads, m, d) queries and (batch, heads, n, d) keys and values. Returns (batch, m, heads, d), and None for the
    weights. A query that may attend to nothing gets 0. Raises RetrievalError for a model that biases or caps the scores.

    Example:
        >>> q = torch.zeros(1, 1, 1, 2)
        >>> softmax_1_attention(None, q, torch.zeros(1, 1, 3, 2), torch.ones(1, 1, 3, 2), None)[0].tolist()
        [[[[0.75, 0.75]]]]
    """
    if kwargs.get("position_bias") is not None or kwargs.get("softcap") is not None:
        raise RetrievalError("This model's scores are biased or capped, which softmax1 does not support; use softmax.")
    if attention_mask is not None:
        # Every query may attend to the zero key: True in a boolean mask, 0 in a mask that is added.
        attention_mask = pad(attention_mask, (0, 1), value=1.0 if attention_mask.dtype == torch.bool else 0.0)
    state = scaled_dot_product_attention(
        query,
        pad(key, (0, 0, 0, 1)),
        pad(value, (0, 0, 0, 1)),
        attn_mask=attention_mask,
        dropout_p=dropout,
        scale=scaling,
        enable_gqa=key.shape[1] != query.shape[1],
    )
    return state.transpose(1, 2).contiguous(), None


def load(name: str, attention: Attention | None = None) -> SentenceTransformer:
    """Load a sentence-transformers model with an attention. None means the attention that it was saved with."""
    from sentence_transformers import SentenceTransformer

    folder = location_of(name)
    with quiet():
        model = SentenceTransformer(name if folder is None else str(folder), device="cpu")
    wanted = attention or saved_attention(model)
    if wanted != "softmax" or saved_attention(model) != "softmax":
        use_attention(model, wanted)
    return model


def use_attention(model: nn.Module, attention: Attention) -> None:
    """Switch the attention of a transformers or sentence-transformers model of the BERT family, in place.

    The weights stay as they are. The choice is saved in the model's config.json as `convcoa_attention`, which `load` reads;
    transformers alone loads the model with softmax. Raises RetrievalError if a trial on a short input shows that the attention
    cannot be exchanged.
    """
    _register()
    model = transformer_of(model)
    wanted = _REGISTERED if attention == "softmax1" else _PLAIN
    try:
        plain = None
        if attention == "softmax1":
            model.set_attn_implementation(_PLAIN)  # type: ignore[operator]
            plain = _trial(model)
        model.set_attn_implementation(wanted)  # type: ignore[operator]
        # Some models accept the setting but do not change their attention.
        if plain is not None and torch.allclose(_trial(model), plain, rtol=1e-4, atol=1e-6):
            raise ValueError("the attention stays as it was")
    except (ValueError, KeyError, AttributeError, TypeError, NotImplementedError) as error:
        name = type(model).__name__
        raise RetrievalError(f"The attention of {name} cannot be set to {attention}; use a BERT or RoBERTa model.") from error
    setattr(model.config, _KEY, attention)


def saved_attention(model: nn.Module) -> Attention:
    """The attention that a model was saved with. Raises RetrievalError if this release does not know it."""
    saved = getattr(getattr(transformer_of(model), "config", None), _KEY, "softmax")
    if saved not in ATTENTIONS:
        raise RetrievalError(f"The encoder was saved with attention {saved!r}, not known here; upgrade the library.")
    return cast(Attention, saved)


def attention_of(model: nn.Module) -> Attention:
    """The attention that a model computes with now."""
    implementation = getattr(getattr(transformer_of(model), "config", None), "_attn_implementation", None)
    return "softmax1" if implementation == _REGISTERED else "softmax"


def transformer_of(model: nn.Module) -> nn.Module:
    """The transformers model inside a sentence-transformers model; any other model as it is."""
    if isinstance(model, nn.Sequential) and len(model):
        model = model[0]
    inner = getattr(model, "auto_model", None)
    return inner if isinstance(inner, nn.Module) else model


def _register() -> None:
    """Register the attention and its mask with transformers. Without the mask, padding would be attended to."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    def mask(*args: Any, **kwargs: Any) -> Tensor | None:
        # An explicit causal mask is needed: the kernel's own mask ignores the added key.
        kwargs["allow_is_causal_skip"] = False
        return sdpa_mask(*args, **kwargs)

    AttentionInterface.register(_REGISTERED, softmax_1_attention)
    AttentionMaskInterface.register(_REGISTERED, mask)


@torch.no_grad()
def _trial(model: nn.Module) -> Tensor:
    training = model.training
    model.eval()
    try:
        device = next(model.parameters()).device
        ids = torch.arange(1, 5, device=device)[None]
        state = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    finally:
        model.train(training)
    return cast(Tensor, state.float())
