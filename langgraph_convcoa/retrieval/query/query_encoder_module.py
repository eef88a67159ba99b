"""The query encoder as a torch module: a copy of the passage encoder that reads a question with the turns before it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.encoders.loading import counting_copy
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer

_KEPT = ("embeddings.", "pooler.")
_FEWEST = 16


@dataclass(frozen=True)
class Reading:
    """How many tokens are read: of everything, special ones included, and of an earlier turn's question and answer.

    The question comes first, so that older turns give way to it.
    """

    tokens: int = 128
    turn_question: int = 64
    turn_answer: int = 40

    def __post_init__(self) -> None:
        for name in ("tokens", "turn_question", "turn_answer"):
            value = getattr(self, name)
            least = _FEWEST if name == "tokens" else 0
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(f"{name} must be a whole number of at least {least}, not {value!r}.")


class QueryText:
    """Questions with their histories as token ids: `[CLS] question [SEP] turn [SEP] turn ... [SEP]`, the newest turn first.

    The tokenizer must be one without truncation and padding.
    """

    def __init__(self, tokenizer: Tokenizer, reading: Reading) -> None:
        self.reading, self.tokenizer = reading, tokenizer
        for marks in (("[CLS]", "[SEP]"), ("<s>", "</s>")):
            start, end = map(tokenizer.token_to_id, marks)
            if start is not None and end is not None:
                self._start, self._end = start, end
                return
        raise InputError("The encoder's tokenizer has no tokens that start and end a text; use a BERT-like encoder.")

    def ids(self, questions: Sequence[str], histories: Sequence[Sequence[tuple[str, str]]]) -> list[list[int]]:
        """The token ids of n questions with their histories, each oldest turn first."""
        texts = dict.fromkeys(questions)
        for history in histories:
            # A turn has two special tokens' worth of room at least, so that older ones than these are never reached.
            texts |= dict.fromkeys(text for turn in history[-self.reading.tokens // 2 :] for text in turn if text)
        # Of the start of a text only, since a long answer's tokens are not all needed; few are longer than 16 characters.
        starts = [text[: 16 * self.reading.tokens] for text in texts]
        encodings = self.tokenizer.encode_batch_fast(starts, add_special_tokens=False)
        pieces = {text: encoding.ids for text, encoding in zip(texts, encodings, strict=True)}
        return [self._joined(question, history, pieces) for question, history in zip(questions, histories, strict=True)]

    def _joined(self, question: str, history: Sequence[tuple[str, str]], pieces: dict[str, list[int]]) -> list[int]:
        reading = self.reading
        found = [self._start, *pieces[question][: reading.tokens - 2], self._end]
        for asked, answer in reversed(history):
            room = reading.tokens - len(found) - 1
            if room < 1:
                break
            turn = pieces.get(asked, [])[: reading.turn_question] + pieces.get(answer, [])[: reading.turn_answer]
            if turn:
                found += [*turn[:room], self._end]
        return found


class QueryEncoderModule(nn.Module):
    """A transformer with its pooling, from token ids to vectors of length one.

    The word embeddings stay those of the encoder; the layers are trained. The encoder's model becomes the query encoder: take
    one that is used for nothing else.
    """

    def __init__(self, model: SentenceTransformer, reading: Reading) -> None:
        super().__init__()
        self.model = model
        self.text = QueryText(counting_copy(model), reading)
        for name, parameter in self.transformer.named_parameters():
            parameter.requires_grad_(not name.startswith(_KEPT))
        for module in self.transformer.modules():
            # Few steps of training, and the vectors of the frozen encoder have none either.
            if isinstance(module, nn.Dropout):
                module.p = 0.0

    @classmethod
    def of(cls, base: str, reading: Reading, *, device: str | None = None) -> QueryEncoderModule:
        """A query encoder that is still the encoder of this name or folder."""
        return cls(SentenceTransformerEncoder(base, device, dtype="float32").model, reading)

    @property
    def transformer(self) -> nn.Module:
        """The transformer without its pooling."""
        transformer = getattr(self.model[0], "auto_model", None) if len(self.model) else None
        if not isinstance(transformer, nn.Module):
            raise RetrievalError("A query encoder needs an encoder that is one transformer, such as all-MiniLM-L6-v2.")
        return transformer

    def learned(self) -> dict[str, Tensor]:
        """The parameters that a query encoder may differ in from its encoder, by name: all but the embeddings."""
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
    """A hash of tensors, by which differences are added only to the weights that they were taken from."""
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name}{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
