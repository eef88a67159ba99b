"""The packages of the extra `graph-reader`, imported when a reader is made."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from langgraph_convcoa.errors import ModelError


def load(module: str) -> Any:
    """A module of an optional package.

    Raises:
        ModelError: The package is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ModelError(
            f'The graph reader needs torch_geometric and peft ({error}): pip install "langgraph-convcoa[graph-reader]".'
        ) from error
