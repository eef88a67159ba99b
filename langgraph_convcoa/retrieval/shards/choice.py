"""Opening shards: what answers for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from langgraph_convcoa.errors import InputError, one_of
from langgraph_convcoa.retrieval.shards.corpus import ShardedCorpus
from langgraph_convcoa.retrieval.shards.names import shard_folders
from langgraph_convcoa.retrieval.shards.workers import ProcessWorker, threads_each

WORKERS: tuple[Literal["processes", "ray"], ...] = ("processes", "ray")


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
