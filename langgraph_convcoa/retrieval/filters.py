"""Filters: which passages may be returned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from langchain_core.documents import Document

Filter = Mapping[str, Any] | Callable[[Document], bool]
"""Metadata that must be equal (or one of a list, tuple or set of values), or a function of the passage."""


def allowed_passages(passages: Sequence[Document], condition: Filter | None) -> npt.NDArray[np.bool_] | None:
    """(n,), True for the passages that meet the condition; None where there is none.

    Example:
        >>> passages = [Document("a", metadata={"year": 2016}), Document("b", metadata={"year": 2020}), Document("c")]
        >>> allowed_passages(passages, {"year": [2016, 2017]}).tolist()
        [True, False, False]
    """
    if condition is None:
        return None
    if callable(condition):
        return np.array([bool(condition(passage)) for passage in passages], dtype=np.bool_)
    return np.array([_has(passage.metadata, condition) for passage in passages], dtype=np.bool_)


def _has(metadata: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(
        metadata.get(key) in value if isinstance(value, list | tuple | set | frozenset) else metadata.get(key) == value
        for key, value in wanted.items()
    )
