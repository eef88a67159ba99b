"""BM25 over passages, for hybrid search."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document
from scipy.sparse import csc_array

from langgraph_convcoa.retrieval.array_file import read_arrays, write_arrays
from langgraph_convcoa.retrieval.documents.split import pattern_text
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.patterns import rows_of
from langgraph_convcoa.text.words import content_words

_KIND = "lexical index"
_VERSION = 1
_K1, _B = 1.5, 0.75
# Largest number of words from earlier turns that count.
_TURN_WORDS = 32
_DECAY = 0.7
# The lowest weight of a turn, relative to the last turn. With this decay, the last nine turns count.
_LEAST = 0.05
# An answer's words count together at most as much as five words of a question.
_ANSWER_WORDS = 5
_ANSWER_CHARACTERS = 1_000


class BM25Index:
    """BM25 over passages in the order in which they were added; `keys` has each passage's key in its corpus.

    Titles count, words are stemmed, and stop words are left out (`text.content_words`). The score is Lucene's form of BM25
    with k1 = 1.5 and b = 0.75. After a change, the weights of words are computed at the next query: about 2 seconds for a
    million passages. Threads must take turns.

    Example:
        >>> index = BM25Index([Document("Hopfield networks store patterns."), Document("BM25 counts words.")])
        >>> index.scores(["What stores a pattern?", "Why?"]).tolist()
        [[1.0, 0.0], [0.0, 0.0]]
    """

    def __init__(self, passages: Iterable[Document] = (), *, source: str = "") -> None:
        self.keys: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.source = source
        self._vocabulary: dict[str, int] = {}
        self._tokens: npt.NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._offsets: npt.NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        self._matrix: csc_array | None = None
        self.add(passages)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def add(self, passages: Iterable[Document], keys: npt.NDArray[np.int64] | None = None) -> None:
        """Append passages with their keys; if `keys` is None, the keys count up from `len(index)`."""
        number, tokens, lengths = self._vocabulary, array("i"), []
        for passage in passages:
            words = content_words(pattern_text(passage))
            tokens.extend(number.setdefault(word, len(number)) for word in words)
            lengths.append(len(words))
        if lengths:
            named = len(self) + np.arange(len(lengths)) if keys is None else keys
            self.keys = np.concatenate([self.keys, named])
            self._tokens = np.concatenate([self._tokens, np.array(tokens, dtype=np.int32)])
            self._offsets = np.concatenate([self._offsets, self._offsets[-1] + np.cumsum(lengths, dtype=np.int64)])
            self._matrix = None

    def select(self, numbers: npt.NDArray[np.int64]) -> BM25Index:
        """A new index of the passages with these numbers, in this order, without the words of other passages."""
        index = BM25Index(source=self.source)
        rows, index._offsets = rows_of(self._offsets, numbers)
        used, renumbered = np.unique(self._tokens[rows], return_inverse=True)
        words = list(self._vocabulary)
        index.keys = self.keys[numbers]
        index._vocabulary = {words[token]: number for number, token in enumerate(used)}
        index._tokens = renumbered.reshape(-1).astype(np.int32)
        return index

    def scores(self, queries: Sequence[str], turns: Sequence[Sequence[tuple[str, str]]] | None = None) -> Vectors:
        """BM25 of each passage, divided by the query's best score, (q, n).

        With `turns`, the words of each query's earlier turns (oldest first) count too, with the weights of `turn_words`. A
        query without earlier turns then scores 0 everywhere.

        Example:
            >>> index = BM25Index([Document("The capital of France."), Document("The rivers of France."), Document("Rivers.")])
            >>> index.scores(["And its rivers?"], [[("Tell me of France.", "")]]).argmax()
            np.int64(1)
        """
        asked: list[Mapping[str, float]] = [Counter(content_words(query)) for query in queries]
        if turns is not None:
            pairs = zip(asked, turns, strict=True)
            asked = [{**own, **self._heaviest(turn_words(earlier, own))} if earlier else {} for own, earlier in pairs]
        return self._scores(asked)

    def _scores(self, asked: Sequence[Mapping[str, float]]) -> Vectors:
        matrix = self._built()
        result: Vectors = np.zeros((len(asked), len(self)), dtype=np.float32)
        for row, words in zip(result, asked, strict=True):
            for word, weight in words.items():
                if (number := self._vocabulary.get(word)) is not None:
                    column = slice(*matrix.indptr[number : number + 2])
                    row[matrix.indices[column]] += np.float32(weight) * matrix.data[column]
            best = float(row.max(initial=0.0))
            if best > 0:
                row /= best
        return result

    def _heaviest(self, words: Mapping[str, float]) -> dict[str, float]:
        found = np.diff(self._built().indptr)
        known = {word: int(found[self._vocabulary[word]]) for word in words if word in self._vocabulary}
        return heaviest(words, len(self), known)

    def save(self, path: str | Path) -> None:
        """Write the index to a file, completely or not at all."""
        matrix = self._built()
        arrays = {
            "tokens": self._tokens,
            "offsets": self._offsets,
            "keys": self.keys,
            "words": np.frombuffer("\n".join(self._vocabulary).encode(), dtype=np.uint8),
            "data": matrix.data,
            "indices": matrix.indices.astype(np.int32),
            "indptr": matrix.indptr.astype(np.int64),
        }
        write_arrays(Path(path), arrays, kind=_KIND, version=_VERSION, settings={"source": self.source})

    @classmethod
    def load(cls, path: str | Path) -> BM25Index:
        """Open a saved index; its arrays are memory-mapped, and their checksums compared."""
        arrays, settings = read_arrays(Path(path), kind=_KIND, version=_VERSION)
        index = cls(source=settings["source"])
        index.keys, index._tokens, index._offsets = arrays["keys"], arrays["tokens"], arrays["offsets"]
        words = arrays["words"].tobytes().decode()
        index._vocabulary = {word: number for number, word in enumerate(words.split("\n"))} if words else {}
        shape = len(index), len(index._vocabulary)
        index._matrix = csc_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=shape)
        return index

    def _built(self) -> csc_array:
        if self._matrix is None:
            self._matrix = _weighted(self._tokens, self._offsets, len(self._vocabulary))
        return self._matrix


def _weighted(tokens: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64], words: int) -> csc_array:
    """The scores of words (columns) in passages (rows). Passage p has the words tokens[offsets[p] : offsets[p + 1]]."""
    # Passages without words count neither in the number of passages nor in the mean length.
    lengths = np.diff(offsets)
    owners = np.repeat(np.arange(len(lengths)), lengths)
    counts = csc_array((np.ones(len(tokens)), (owners, tokens)), shape=(len(lengths), words))
    found, filled = np.diff(counts.indptr), int((lengths > 0).sum())
    weights = saturation(counts.data, lengths[counts.indices], len(tokens) / max(filled, 1))
    counts.data = (np.repeat(idf(filled, found), found) * weights).astype(np.float32)
    return counts


def idf(passages: int, found: Any) -> Any:
    """The weight of a word that is in `found` of the passages; or an array of weights for an array `found`."""
    return np.log1p((passages - found + 0.5) / (found + 0.5))


def saturation(counts: Any, lengths: Any, mean_length: float) -> Any:
    """The weights, from 0 to 1, of words with these counts in passages of these lengths, before their idf."""
    return counts / (counts + _K1 * (1 - _B + _B * lengths / max(mean_length, 1e-9)))


def heaviest(words: Mapping[str, float], passages: int, found: Mapping[str, int]) -> dict[str, float]:
    """The 32 words of earlier turns that count most, with their weights; words in no passage are left out."""
    known = [word for word in words if found.get(word)]
    best = sorted(known, key=lambda word: -words[word] * idf(passages, found[word]))
    return {word: words[word] for word in best[:_TURN_WORDS]}


def turn_words(turns: Sequence[tuple[str, str]], asked: Collection[str]) -> dict[str, float]:
    """Weights of the content words of earlier turns (given oldest first); words of the question (`asked`) are left out.

    A word of the last turn's question counts 1/n if `asked` has n different words, and at most a half. Each turn
    further back counts 0.7 times as much. An answer's words count the same, but together at most as much as five words.

    Example:
        >>> turn_words([("Who wrote the Iliad?", "Homer."), ("Is it long?", "")], ["translate"])
        {'long': 0.5, 'homer': 0.35, 'wrote': 0.35, 'iliad': 0.35}
    """
    known, found = set(asked), dict[str, float]()
    weight = 1 / max(len(known), 2)
    least = _LEAST * weight
    for question, answer in reversed(turns):
        said = content_words(answer[:_ANSWER_CHARACTERS])
        of_answer = weight * min(1.0, _ANSWER_WORDS / max(len(said), 1))
        for words, value in ((said, of_answer), (content_words(question[:_ANSWER_CHARACTERS]), weight)):
            for word in words:
                if word not in known:
                    found[word] = max(found.get(word, 0.0), value)
        weight *= _DECAY
        if weight < least:
            break
    return found
