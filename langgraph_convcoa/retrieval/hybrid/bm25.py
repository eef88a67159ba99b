"""The lexical channel: BM25 over the same passages, added to the dense score."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path

import bm25s
import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document
from scipy.sparse import csc_matrix

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.array_file import ArrayFile, write_arrays
from langgraph_convcoa.retrieval.documents.split import pattern_text
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.text.words import content_words

_KIND = "lexical index"
_VERSION = 1
_K1, _B = 1.5, 0.75


class LexicalIndex:
    """BM25 over passages, which are numbered in the order in which they were added.

    A passage counts with its title; words are stemmed, and stop words are left out (`text.content_words`). The score is
    Lucene's form of BM25 with k1 = 1.5 and b = 0.75. Weights of words depend on all passages, so that after a change they are
    made anew at the next query: about 2 seconds a million passages, tokens being kept. Several threads may search one index.

    Args:
        passages: The first passages.

    Attributes:
        keys: Of a loaded index, what it was saved with.
        source: Of a loaded index, what it was saved with.

    Example:
        >>> index = LexicalIndex([Document("Hopfield networks store patterns."), Document("BM25 counts words.")])
        >>> index.scores(["What stores a pattern?", "Why?"]).tolist()
        [[1.0, 0.0], [0.0, 0.0]]
    """

    def __init__(self, passages: Iterable[Document] = ()) -> None:
        self._lock = threading.RLock()
        self._vocabulary: dict[str, int] | None = {}
        self._file: ArrayFile | None = None
        self.keys: npt.NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.source = ""
        self._tokens: npt.NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self._offsets: npt.NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        self._bm25: _BM25 | None = None
        self.add(passages)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def add(self, passages: Iterable[Document]) -> None:
        """Append passages; their numbers go on from `len(index)`."""
        with self._lock:
            vocabulary = self._words()
            tokens, lengths = array("i"), []
            for passage in passages:
                words = content_words(pattern_text(passage))
                tokens.extend(vocabulary.setdefault(word, len(vocabulary)) for word in words)
                lengths.append(len(words))
            if lengths:
                self._tokens = np.concatenate([self._tokens, np.array(tokens, dtype=np.int32)])
                self._offsets = np.concatenate([self._offsets, self._offsets[-1] + np.cumsum(lengths, dtype=np.int64)])
                self._bm25 = None

    def remove(self, numbers: Iterable[int]) -> None:
        """Forget the words of passages. The numbers of the others stay; a removed one scores 0 for every query.

        Raises:
            InputError: There is no passage of such a number.
        """
        with self._lock:
            gone = np.unique(np.fromiter(numbers, dtype=np.int64))
            self._check_numbers(gone)
            if not len(gone):
                return
            lengths = np.diff(self._offsets)
            keep = np.repeat(~np.isin(np.arange(len(self)), gone), lengths)
            lengths[gone] = 0
            self._tokens = np.asarray(self._tokens[keep])
            self._offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
            self._bm25 = None

    def select(self, numbers: Sequence[int] | npt.NDArray[np.int64]) -> LexicalIndex:
        """A new index of the passages of these numbers, in this order.

        Raises:
            InputError: There is no passage of such a number.
        """
        with self._lock:
            chosen = np.asarray(numbers, dtype=np.int64).reshape(-1)
            self._check_numbers(chosen)
            index = LexicalIndex()
            old = [self._tokens[self._offsets[i] : self._offsets[i + 1]] for i in chosen]
            tokens = np.concatenate([index._tokens, *old])
            used, renumbered = np.unique(tokens, return_inverse=True)
            words = list(self._words())
            index._vocabulary = {words[token]: number for number, token in enumerate(used)}
            index._tokens = renumbered.reshape(-1).astype(np.int32)
            index._offsets = np.concatenate([[0], np.cumsum([len(part) for part in old], dtype=np.int64)]).astype(np.int64)
            return index

    def scores(self, queries: Sequence[str]) -> Vectors:
        """BM25 of every passage for each query over the best of that query; 0 for all where nothing matches.

        Args:
            queries: q questions, as they were put.

        Returns:
            (q, n), from 0 to 1: times a weight, what `scoring.search` takes as `extra`.

        Raises:
            RetrievalError: The index was loaded from a file that is damaged.
        """
        with self._lock:
            bm25, vocabulary = self._built(), self._words()
        # Passages that another thread adds from here on do not count, nor do their words.
        passages, words = bm25.scores["num_docs"], len(bm25.scores["indptr"]) - 1
        result: Vectors = np.zeros((len(queries), passages), dtype=np.float32)
        for row, query in zip(result, queries, strict=True):
            numbers = (vocabulary.get(word, words) for word in content_words(query))
            known = [number for number in numbers if number < words]
            if known and passages:
                row[:] = bm25.get_scores_from_ids(known)
                best = float(row.max())
                if best > 0:
                    row /= best
        return result

    def save(self, path: str | Path, *, keys: npt.NDArray[np.int64] | None = None, source: str = "") -> None:
        """Write the index to one file, which replaces an older one whole or not at all. Nothing is pickled.

        Args:
            path: The file.
            keys: (n,), names of the passages elsewhere, which `load` gives back as `keys`.
            source: Where those names are valid, given back as `source`.

        Raises:
            InputError: There is not one key a passage.
            RetrievalError: The file cannot be written.
        """
        with self._lock:
            names = np.zeros(0, dtype=np.int64) if keys is None else np.asarray(keys, dtype=np.int64)
            if keys is not None and names.shape != (len(self),):
                raise InputError(f"There are {len(self)} passages and keys of shape {names.shape}; give one each.")
            matrix = self._built().scores
            arrays = {
                "tokens": self._tokens,
                "offsets": self._offsets,
                "keys": names,
                "words": np.frombuffer("\n".join(self._words()).encode(), dtype=np.uint8),
                "data": matrix["data"],
                "indices": matrix["indices"],
                "indptr": matrix["indptr"],
            }
        write_arrays(Path(path), arrays, kind=_KIND, version=_VERSION, settings={"source": source})

    @classmethod
    def load(cls, path: str | Path) -> LexicalIndex:
        """Open a saved index; its arrays are memory-mapped and checked against their checksums at the first query.

        Raises:
            RetrievalError: The file is missing, damaged, no such index, or of another version.
        """
        file = ArrayFile(Path(path), kind=_KIND, version=_VERSION)
        index = cls()
        index._vocabulary, index._file = None, file
        index.keys, index.source = file.arrays["keys"], file.settings["source"]
        index._tokens, index._offsets = file.arrays["tokens"], file.arrays["offsets"]
        matrix = {name: file.arrays[name] for name in ("data", "indices", "indptr")}
        index._bm25 = _BM25.of({**matrix, "num_docs": len(index)})
        return index

    @staticmethod
    def saved(path: str | Path) -> int:
        """How many passages a saved index has, without reading it; 0 where there is none that can be read."""
        try:
            return len(ArrayFile(Path(path), kind=_KIND, version=_VERSION).arrays["offsets"]) - 1
        except RetrievalError:
            return 0

    def _built(self) -> _BM25:
        with self._lock:
            if self._bm25 is None:
                self._bm25 = _BM25.of(_matrix(self._tokens, self._offsets, len(self._words())))
            return self._bm25

    def _words(self) -> dict[str, int]:
        """Numbers of words, read at the first use, so that an index opens at once."""
        with self._lock:
            if self._vocabulary is None:
                self._vocabulary = _unpacked(self._file) if self._file is not None else {}
                self._file = None
            return self._vocabulary

    def _check_numbers(self, numbers: npt.NDArray[np.int64]) -> None:
        if len(numbers) and (numbers.min() < 0 or numbers.max() >= len(self)):
            raise InputError(f"The lexical index has passages 0 to {len(self) - 1}; there is no {int(numbers.max())}.")


class _BM25(bm25s.BM25):  # type: ignore[misc]
    """bm25s over a matrix of scores that is there already."""

    @classmethod
    def of(cls, scores: dict[str, npt.NDArray[np.generic] | int]) -> _BM25:
        index = cls(k1=_K1, b=_B, method="lucene")
        index.scores, index.nonoccurrence_array = scores, None
        return index


def _unpacked(file: ArrayFile) -> dict[str, int]:
    """The vocabulary of a file, after a look at all of its checksums."""
    file.check()
    packed = file.arrays["words"].tobytes().decode()
    return {word: number for number, word in enumerate(packed.split("\n"))} if packed else {}


def _matrix(
    tokens: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64], words: int
) -> dict[str, npt.NDArray[np.generic] | int]:
    """What `bm25s.BM25.index` makes (method lucene), by columns: at once for all passages, some fifteen times as fast.

    Passages without words, which removed ones are, do not count in the number of passages or in their mean length.
    """
    lengths = np.diff(offsets)
    passages = len(lengths)
    rows = np.repeat(np.arange(passages, dtype=np.int32), lengths)
    counts = csc_matrix((np.ones(len(tokens), dtype=np.float32), (rows, tokens)), shape=(passages, max(words, 1)))
    counts.sum_duplicates()
    found = np.diff(counts.indptr)
    filled = int((lengths > 0).sum())
    idf = np.log1p((filled - found + 0.5) / (found + 0.5))
    norms = _K1 * (1 - _B + _B * lengths / max(len(tokens) / max(filled, 1), 1e-9))
    data = np.repeat(idf, found) * counts.data / (counts.data + norms[counts.indices])
    return {
        "data": data.astype(np.float32),
        "indices": counts.indices.astype(np.int32),
        "indptr": counts.indptr.astype(np.int64),
        "num_docs": passages,
    }
