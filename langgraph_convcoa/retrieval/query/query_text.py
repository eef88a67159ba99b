"""A question with the turns before it as token ids, for the query encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langgraph_convcoa.errors import InputError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_FEWEST = 16


@dataclass(frozen=True)
class Reading:
    """Limits in tokens: for the whole text with special tokens, and for an earlier turn's question and answer."""

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

    The tokenizer must not truncate or pad.
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
        """The token ids of n questions with their histories, each with the oldest turn first."""
        texts = dict.fromkeys(questions)
        for history in histories:
            # A turn takes at least two tokens, so there is no room for older turns.
            texts |= dict.fromkeys(text for turn in history[-self.reading.tokens // 2 :] for text in turn if text)
        # The start of a text is enough: few tokens are longer than 16 characters.
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
