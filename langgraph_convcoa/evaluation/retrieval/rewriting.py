"""Query reformulation by trained sequence-to-sequence models: rewriting (T5QR) and expansion by an answer (ConvGQR)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.encoders.loading import quiet

SEPARATOR = " ||| "
_INPUT_TOKENS, _OUTPUT_TOKENS = 512, 64
_BEAMS, _BATCH = 10, 16


class Seq2Seq:
    """A sequence-to-sequence model that learned to write a text for a question in its conversation.

    It reads `q1 ||| a1 ||| q2 ||| a2 ||| question`, the last 512 tokens of it, and writes at most 64 tokens by a beam search
    of width 10: the recipe of T5QR (Lin et al. 2020), whose weights are published as `castorini/t5-base-canard`.

    Args:
        name: Folder or hub name of a T5, or another model that transformers knows as sequence-to-sequence, and its tokenizer.

    Raises:
        InputError: There is none, it is of another kind, lacks weights, or its tokenizer does not fit it.
    """

    def __init__(self, name: str | Path) -> None:
        import torch
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        advice = (
            "name a folder or a hub name of a sequence-to-sequence model with its tokenizer, such as castorini/t5-base-canard"
        )
        try:
            with quiet():
                self._tokenizer = AutoTokenizer.from_pretrained(str(name), truncation_side="left")
                model, loaded = AutoModelForSeq2SeqLM.from_pretrained(str(name), output_loading_info=True)
        # The hub, the file formats and torch raise errors of many types; all mean that there is no model.
        except Exception as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
            raise InputError(f"The model {name} cannot be loaded ({reason}): {advice}.") from error
        # Weights that are not in the files would be drawn at random.
        missing = [*loaded["missing_keys"], *loaded["mismatched_keys"]]
        if missing:
            raise InputError(f"The model {name} has no weights for {missing[0]} and {len(missing) - 1} more: {advice}.")
        words = model.get_input_embeddings().num_embeddings
        # Where there is none, transformers makes one of a few tokens.
        if not words / 2 <= len(self._tokenizer) <= words or self._tokenizer.pad_token_id is None:
            fault = f"its tokenizer has {len(self._tokenizer)} tokens, the model {words}"
            raise InputError(f"The tokenizer in {name} is not of the model there ({fault}): {advice}.")
        self._model = model.to("cuda" if torch.cuda.is_available() else "cpu").eval()

    def write(self, queries: Sequence[Query]) -> list[str]:
        """What the model writes for each question in its conversation."""
        import torch

        texts = [SEPARATOR.join([part for turn in q.history for part in turn if part] + [q.question]) for q in queries]
        # Of the end alone: no token of T5 has more than 16 characters; where another model's have, it may read a little less.
        texts = [text[-16 * _INPUT_TOKENS :] for text in texts]
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        written = [""] * len(texts)
        for start in range(0, len(order), _BATCH):
            rows = order[start : start + _BATCH]
            batch = self._tokenizer(
                [texts[row] for row in rows], truncation=True, max_length=_INPUT_TOKENS, padding=True, return_tensors="pt"
            )
            inputs = {name: batch[name].to(self._model.device) for name in ("input_ids", "attention_mask")}
            with quiet(), torch.no_grad():
                found = self._model.generate(**inputs, num_beams=_BEAMS, do_sample=False, max_new_tokens=_OUTPUT_TOKENS)
            for row, text in zip(rows, self._tokenizer.batch_decode(found, skip_special_tokens=True), strict=True):
                written[row] = text.strip()
        return written


def rewrites(rewriter: Seq2Seq, queries: Sequence[Query]) -> list[str]:
    """The question of each query as the rewriter writes it; as it was put where it has no history or nothing is written."""
    asked = [query for query in queries if query.history]
    written = iter(rewriter.write(asked))
    return [(next(written) if query.history else "") or query.question for query in queries]


def expansions(rewriter: Seq2Seq, answerer: Seq2Seq, queries: Sequence[Query]) -> list[str]:
    """The rewrite of each query with the answer that is expected behind it (ConvGQR: Mo et al. 2023).

    Its rewriter and its generator of answers learned together with the passages' vectors; here they are as they are given.
    """
    pairs = zip(rewrites(rewriter, queries), answerer.write(queries), strict=True)
    return [f"{rewrite} {answer}".strip() for rewrite, answer in pairs]


def expanded_by_answers(query: Query) -> str:
    """The question and the answers of earlier turns, latest first.

    Example:
        >>> expanded_by_answers(Query("3", "And then?", (("Who?", "Ada."), ("When?", "1843."))))
        'And then? 1843. Ada.'
    """
    return " ".join([query.question, *(answer for _, answer in reversed(query.history) if answer.strip())])
