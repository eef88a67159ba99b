"""The folders of shards, by their names: which there are, and which are missing."""

from __future__ import annotations

import re
from pathlib import Path

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.index.database import is_index

_FOLDER = re.compile(r"shard-(\d+)-of-(\d+)")


def is_sharded(path: str | Path) -> bool:
    """Whether a folder holds shards that `shard_path` named."""
    try:
        return any(_FOLDER.fullmatch(folder.name) and is_index(folder) for folder in Path(path).iterdir())
    except OSError:
        return False


def shard_path(folder: str | Path, number: int, count: int) -> Path:
    """The folder of a shard among others, by its number from 1.

    Example:
        >>> shard_path("all", 2, 4).as_posix()
        'all/shard-2-of-4'
    """
    return Path(folder) / f"shard-{number}-of-{count}"


def shard_counts(folder: str | Path) -> set[int]:
    """How many shards the names of those in a folder say that there are: one number, unless something is wrong."""
    return {int(match[2]) for path in Path(folder).glob("shard-*") if (match := _FOLDER.fullmatch(path.name))}


def shard_folders(folder: str | Path) -> list[Path]:
    """The shards in a folder, in order; RetrievalError where there are none, or one of them is missing."""
    counts = shard_counts(folder)
    if len(counts) != 1:
        what = "shards of several sets" if counts else "no shards"
        raise RetrievalError(f"{folder} holds {what}; make them with convcoa index PATH --out {folder} --shards N.")
    count = counts.pop()
    folders = [shard_path(folder, number, count) for number in range(1, count + 1)]
    missing = next((path for path in folders if not is_index(path)), None)
    if missing is not None:
        raise RetrievalError(f"The shard {missing} is missing; restore it from a copy, or make it again.")
    return folders
