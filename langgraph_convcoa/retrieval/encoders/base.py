"""The interface of an encoder, which turns texts into vectors, and encoders around another encoder."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache

from langgraph_convcoa.errors import RetrievalError

Vectors = npt.NDArray[np.float32]  # One vector a row, float32, L2-normalised.
_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")

DEFAULT_ENCODER = "sentence-transformers/all-MiniLM-L6-v2"


@runtime_checkable
class Encoder(Protocol):
    """An encoder of texts. Subclass it to inherit `count_tokens_batch`.

    Attributes:
        name: Identifies the vectors: two encoders of the same name give the same vectors for a text.
        dimension: Length d of a vector.
        max_tokens: Highest number of tokens that are read, special tokens included. A longer text is cut off.
    """

    @property
    def name(self) -> str: ...

    @property
    def dimension(self) -> int: ...

    @property
    def max_tokens(self) -> int: ...

    def count_tokens(self, text: str) -> int:
        """Number of tokens of a text, special tokens included and nothing cut off."""
        ...

    def count_tokens_batch(self, texts: Sequence[str]) -> list[int]:
        return [self.count_tokens(text) for text in texts]

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        """Vectors (n, d) of questions."""
        ...

    def encode_passages(self, texts: Sequence[str]) -> Vectors:
        """Vectors (n, d) of passages."""
        ...


class DelegatingEncoder(Encoder):
    """Passes every call on to another encoder; a subclass overrides some of them."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.encoder!r})"

    @property
    def name(self) -> str:
        return self.encoder.name

    @property
    def dimension(self) -> int:
        return self.encoder.dimension

    @property
    def max_tokens(self) -> int:
        return self.encoder.max_tokens

    def count_tokens(self, text: str) -> int:
        return self.encoder.count_tokens(text)

    def count_tokens_batch(self, texts: Sequence[str]) -> list[int]:
        return self.encoder.count_tokens_batch(texts)

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        return self.encoder.encode_queries(texts)

    def encode_passages(self, texts: Sequence[str]) -> Vectors:
        return self.encoder.encode_passages(texts)


class RecentValues(Generic[_Key, _Value]):
    """The values of the `capacity` most recent keys. One thread at a time makes missing values, so each is made once.

    Example:
        >>> lengths = RecentValues[str, int](2)
        >>> lengths.of(["a", "bb", "a"], lambda new: [len(text) for text in new])
        {'a': 1, 'bb': 2}
    """

    def __init__(self, capacity: int) -> None:
        self._kept: LRUCache[_Key, _Value] = LRUCache(capacity)
        self._lock = threading.Lock()
        self._making = threading.RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy starts empty, with locks of its own.
        return type(self), (int(self._kept.maxsize),)

    def of(self, keys: Iterable[_Key], make: Callable[[list[_Key]], Iterable[_Value]]) -> dict[_Key, _Value]:
        """The value of each key; missing values are made together."""
        wanted = list(dict.fromkeys(keys))
        found = self._known(wanted)
        if len(found) < len(wanted):
            with self._making:
                found |= self._known(wanted)
                new = [key for key in wanted if key not in found]
                made = dict(zip(new, make(new), strict=True)) if new else {}
                with self._lock:
                    self._kept.update(made)
                found |= made
        return {key: found[key] for key in wanted}

    def _known(self, keys: list[_Key]) -> dict[_Key, _Value]:
        with self._lock:
            return {key: self._kept[key] for key in keys if key in self._kept}


class RecentEncoder(DelegatingEncoder):
    """Wraps an encoder, and keeps its results for the `capacity` most recent texts of each kind."""

    def __init__(self, encoder: Encoder, capacity: int) -> None:
        super().__init__(encoder)
        self._queries, self._passages = RecentValues[str, Vectors](capacity), RecentValues[str, Vectors](capacity)
        self._counts = RecentValues[str, int](capacity)

    def count_tokens(self, text: str) -> int:
        return self.count_tokens_batch([text])[0]

    def count_tokens_batch(self, texts: Sequence[str]) -> list[int]:
        counts = self._counts.of(texts, self.encoder.count_tokens_batch)
        return [counts[text] for text in texts]

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        vectors = self._queries.of(texts, self.encoder.encode_queries)
        return np.stack([vectors[text] for text in texts]) if texts else self.encoder.encode_queries([])

    def encode_passages(self, texts: Sequence[str]) -> Vectors:
        vectors = self._passages.of(texts, self.encoder.encode_passages)
        return np.stack([vectors[text] for text in texts]) if texts else self.encoder.encode_passages([])


def without_arithmetic(name: str) -> str:
    """An encoder's name without its dtype: vectors of different dtypes can be compared.

    Example:
        >>> without_arithmetic("sentence-transformers/all-MiniLM-L6-v2|int8|256")
        'sentence-transformers/all-MiniLM-L6-v2|256'
    """
    return re.sub(r"\|(?:float32|bfloat16|int8)\|", "|", name)


def normalised(vectors: npt.ArrayLike, count: int, dimension: int | None, name: str) -> Vectors:
    """An encoder's vectors as float32 rows (count, dimension) of length one; a zero vector stays zero.

    RetrievalError for another shape, NaN or infinity.
    """
    try:
        rows = np.array(vectors, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise RetrievalError(f"The encoder {name!r} did not return vectors of numbers, all of one length: {error}.") from None
    if count == 0:
        return np.zeros((0, dimension or 0), dtype=np.float32)
    fits = rows.ndim == 2 and rows.shape[0] == count and rows.shape[1] > 0
    if not fits or (dimension is not None and rows.shape[1] != dimension):
        expected = f"({count}, {'d' if dimension is None else dimension})"
        raise RetrievalError(f"The encoder {name!r} returned vectors of shape {rows.shape} where {expected} is needed.")
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        bad = finite.argmin() + 1
        raise RetrievalError(f"The encoder {name!r} returned NaN or infinity (text {bad} of {count}); use another encoder.")
    # The lengths are summed in float64: squares of large or tiny numbers are out of float32's range.
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))[:, None]
    np.divide(rows, lengths, out=rows, where=lengths > 0)
    return rows


def cores() -> int:
    """The number of computing threads: OMP_NUM_THREADS, as for torch, or the cores of this process."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if wanted.isdecimal() and int(wanted) > 0:
        return int(wanted)
    # Missing on some systems.
    allowed: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1
