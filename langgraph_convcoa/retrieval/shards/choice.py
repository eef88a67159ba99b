"""Opening shards: which folders they are, and what answers for each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from langgraph_convcoa.errors import InputError, RetrievalError, one_of
from langgraph_convcoa.retrieval.index.database import is_index
from langgraph_convcoa.retrieval.shards.corpus import ShardedCorpus
from langgraph_convcoa.retrieval.shards.workers import ProcessWorker, threads_each

WORKERS: tuple[Literal["processes", "ray"], ...] = ("processes", "ray")

_FOLDER = re.compile(r"shard-(\d+)-of-(\d+)")


def open_shards(
    paths: str | Path | Iterable[str | Path],
    *,
    workers: str = "processes",
    timeout: float = 10.0,
    partial: bool = False,
    ray_address: str | None = None,
    ray_options: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
) -> ShardedCorpus:
    """Open indexes as the shards of one corpus; the arguments are those of `HopfieldRetriever.from_shards`."""
    kind = one_of("workers", workers, WORKERS)
    folders = shard_folders(paths) if isinstance(paths, str | Path) else [Path(path) for path in paths]
    if kind == "ray":
        from langgraph_convcoa.retrieval.shards.ray_workers import RayWorkers

        cluster = RayWorkers(ray_address)
        return ShardedCorpus(cluster.workers(folders, ray_options), timeout=timeout, partial=partial, closing=cluster.close)
    if ray_address is not None or ray_options is not None:
        raise InputError('ray_address and ray_options are for workers="ray".')
    threads = threads_each(len(folders))
    return ShardedCorpus([ProcessWorker(path, threads) for path in folders], timeout=timeout, partial=partial)


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


def shard_folders(folder: str | Path) -> list[Path]:
    """The shards in a folder, in order; RetrievalError where there are none, or one of them is missing."""
    found = {path: match for path in sorted(Path(folder).glob("shard-*")) if (match := _FOLDER.fullmatch(path.name))}
    counts = {int(match[2]) for match in found.values()}
    if len(counts) != 1:
        what = "shards of several sets" if counts else "no shards"
        raise RetrievalError(f"{folder} holds {what}; make them with convcoa index PATH --out {folder} --shards N.")
    count = counts.pop()
    folders = [shard_path(folder, number, count) for number in range(1, count + 1)]
    missing = next((path for path in folders if not is_index(path)), None)
    if missing is not None:
        raise RetrievalError(f"The shard {missing} is missing; restore it from a copy, or make it again.")
    return folders
