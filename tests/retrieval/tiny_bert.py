"""A small BERT with random weights in the folder of a sentence-transformers model, and its forward pass in plain loops."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor, nn

WORDS = ("what", "who", "when", "is", "was", "the", "a", "network", "book", "river", "hopfield", "stores", "memory")


def tiny_bert(seed: int = 0, width: int = 32) -> nn.Module:
    """Two layers of four heads; weights large enough for attention to be far from uniform."""
    from transformers import BertConfig, BertModel

    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(WORDS) + 5,
        hidden_size=width,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=2 * width,
        max_position_embeddings=64,
        initializer_range=0.4,
    )
    return BertModel(config).eval()


def save_tiny_bert(folder: Path, seed: int = 0, width: int = 32) -> Path:
    """Write a plain transformers checkpoint with a tokenizer of the words above, and return its folder."""
    from transformers import BertTokenizerFast

    folder.mkdir(parents=True)
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]) + "\n")
    BertTokenizerFast(vocab=str(vocabulary), model_max_length=64).save_pretrained(folder)
    tiny_bert(seed, width).save_pretrained(folder)
    return folder


def save_tiny_encoder(folder: Path, seed: int = 0, width: int = 32, pooling: str = "mean") -> Path:
    """Write a sentence-transformers model around the checkpoint above, and return its folder."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    plain = save_tiny_bert(folder.with_name(folder.name + "-plain"), seed, width)
    transformer = Transformer(str(plain))
    model = SentenceTransformer(modules=[transformer, Pooling(width, pooling_mode=pooling)], device="cpu")
    model.save_pretrained(str(folder), create_model_card=False)
    return folder


def loop_attention(query: Tensor, key: Tensor, value: Tensor, scale: float, allowed: Tensor | None = None) -> Tensor:
    """softmax_1 attention over (heads, n, d), one head, query and key at a time: exp(s) / (1 + sum exp(s)) by the formula."""
    heads, count, _ = query.shape
    rows = []
    for head in range(heads):
        for i in range(count):
            powers = [
                torch.exp(scale * query[head, i] @ key[head, j])
                for j in range(key.shape[1])
                if allowed is None or bool(allowed[i, j])
            ]
            values = [value[head, j] for j in range(key.shape[1]) if allowed is None or bool(allowed[i, j])]
            total = 1 + sum(powers)
            rows.append(sum((p / total * v for p, v in zip(powers, values, strict=True)), torch.zeros_like(value[head, 0])))
    return torch.stack(rows).reshape(heads, count, -1)


def loop_bert(model: nn.Module, ids: Tensor) -> Tensor:
    """The last hidden state (n, d) of one text without padding, with `loop_attention` in every layer."""
    state = model.embeddings(input_ids=ids[None])[0]
    for layer in model.encoder.layer:
        attention = layer.attention.self
        heads = model.config.num_attention_heads
        projected = (part(state) for part in (attention.query, attention.key, attention.value))
        q, k, v = (x.reshape(len(ids), heads, -1).transpose(0, 1) for x in projected)
        read = loop_attention(q, k, v, 1 / math.sqrt(q.shape[-1])).transpose(0, 1).reshape(len(ids), -1)
        state = layer.attention.output(read, state)
        state = layer.output(layer.intermediate(state), state)
    return state


def save_cross_encoder(folder: Path, labels: dict[str, int] | None) -> str:
    """A tiny BERT with a classifier of so many labels, one output when None."""
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    plain = save_tiny_bert(folder / "plain")
    config = BertConfig.from_pretrained(plain, num_labels=len(labels) if labels else 1)
    if labels:
        config.label2id, config.id2label = labels, {place: label for label, place in labels.items()}
    BertForSequenceClassification(config).save_pretrained(folder / "made")
    AutoTokenizer.from_pretrained(plain).save_pretrained(folder / "made")
    return str(folder / "made")
