"""The question tower as a torch module: a copy of the encoder that learns to read questions in conversation."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.encoders.loading import counting_copy
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from langgraph_convcoa.retrieval.query.query_encoder_text import Reading, TowerText

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_KEPT = ("embeddings.", "pooler.")


class TowerModule(nn.Module):
    """A transformer with its pooling, from token ids to vectors of length one.

    The embeddings of words stay those of the encoder, so that what is learned is the layers alone.

    Args:
        model: The encoder's model, which becomes the tower: take one that is used for nothing else.
        reading: How much of a question and its history is read.
        frozen_layers: How many of the lowest layers are not trained.

    Raises:
        RetrievalError: The model is not made of a transformer whose layers can be told apart.
    """

    def __init__(self, model: SentenceTransformer, reading: Reading, *, frozen_layers: int = 0) -> None:
        super().__init__()
        self.model = model
        self.text = TowerText(counting_copy(model), reading)
        for name, parameter in self.transformer.named_parameters():
            layer = _layer(name)
            parameter.requires_grad_(not name.startswith(_KEPT) and (layer is None or layer >= frozen_layers))
        for module in self.transformer.modules():
            # Few steps of training, and the vectors of the frozen encoder have none either.
            if isinstance(module, nn.Dropout):
                module.p = 0.0

    @classmethod
    def of(cls, base: str, reading: Reading, *, device: str | None = None, frozen_layers: int = 0) -> TowerModule:
        """A tower that is still the encoder of this name or folder."""
        return cls(SentenceTransformerEncoder(base, device, dtype="float32").model, reading, frozen_layers=frozen_layers)

    @property
    def transformer(self) -> nn.Module:
        """The transformer without its pooling."""
        transformer = getattr(self.model[0], "auto_model", None) if len(self.model) else None
        if not isinstance(transformer, nn.Module):
            raise RetrievalError("A question tower needs an encoder that is one transformer, such as all-MiniLM-L6-v2.")
        return transformer

    def learned(self) -> dict[str, Tensor]:
        """The parameters that a tower may differ in from its encoder, by name: all but the embeddings."""
        return {name: p.data for name, p in self.transformer.named_parameters() if not name.startswith(_KEPT)}

    def forward(self, ids: Sequence[Sequence[int]]) -> Tensor:
        """Vectors (n, d) of n lists of token ids, float32."""
        device = next(self.parameters()).device
        longest = max(map(len, ids))
        tokens = torch.zeros(len(ids), longest, dtype=torch.long)
        mask = torch.zeros(len(ids), longest, dtype=torch.long)
        for row, one in enumerate(ids):
            tokens[row, : len(one)] = torch.tensor(one)
            mask[row, : len(one)] = 1
        features: Mapping[str, Tensor] = self.model({"input_ids": tokens.to(device), "attention_mask": mask.to(device)})
        return nn.functional.normalize(features["sentence_embedding"].float(), dim=-1)


def fingerprint(weights: Mapping[str, Tensor]) -> str:
    """A hash of tensors: what the differences of a tower are added to must be what they were taken from."""
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name}{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _layer(name: str) -> int | None:
    """The number of the layer that a parameter belongs to."""
    parts = name.split(".")
    return next((int(part) for before, part in pairwise(parts) if before == "layer" and part.isdigit()), None)
