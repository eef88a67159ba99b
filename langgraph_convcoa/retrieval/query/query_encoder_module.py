"""The query encoder as a torch module: a copy of the passage encoder that reads a question with the turns before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder, counting_copy
from langgraph_convcoa.retrieval.query.query_text import QueryText, Reading

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_KEPT = ("embeddings.", "pooler.")


class QueryEncoderModule(nn.Module):
    """A transformer with its pooling, from token ids to vectors of length one.

    Training changes the layers, but not the embeddings. The model given becomes the query encoder: use it for nothing else.
    """

    def __init__(self, model: SentenceTransformer, reading: Reading) -> None:
        super().__init__()
        self.model = model
        self.text = QueryText(counting_copy(model), reading)
        for name, parameter in self.transformer.named_parameters():
            parameter.requires_grad_(not name.startswith(_KEPT))
        for module in self.transformer.modules():
            # No dropout: training is short, and the frozen encoder's vectors have none.
            if isinstance(module, nn.Dropout):
                module.p = 0.0

    @classmethod
    def of(cls, base: str, reading: Reading, *, device: str | None = None) -> QueryEncoderModule:
        """An untrained query encoder: the encoder of this name or folder."""
        return cls(SentenceTransformerEncoder(base, device, dtype="float32").model, reading)

    @property
    def transformer(self) -> nn.Module:
        """The transformer without its pooling."""
        transformer = getattr(self.model[0], "auto_model", None) if len(self.model) else None
        if not isinstance(transformer, nn.Module):
            raise RetrievalError("A query encoder needs an encoder that is one transformer, such as all-MiniLM-L6-v2.")
        return transformer

    def learned(self) -> dict[str, Tensor]:
        """The parameters that are trained, by name: all except the embeddings and the pooler."""
        return {name: p.data for name, p in self.transformer.named_parameters() if not name.startswith(_KEPT)}

    def forward(self, ids: Sequence[Sequence[int]]) -> Tensor:
        """Vectors (n, d) of n lists of token ids, float32."""
        device = next(self.parameters()).device
        tokens = pad_sequence([torch.tensor(one) for one in ids], batch_first=True)
        mask = pad_sequence([torch.ones(len(one), dtype=torch.long) for one in ids], batch_first=True)
        features: Mapping[str, Tensor] = self.model({"input_ids": tokens.to(device), "attention_mask": mask.to(device)})
        return nn.functional.normalize(features["sentence_embedding"].float(), dim=-1)
