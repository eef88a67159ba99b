"""Workers that are actors of Ray, on the nodes of a cluster or on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.index.index import Index
from langgraph_convcoa.retrieval.shards.shard import Shard
from langgraph_convcoa.retrieval.shards.wire import Message, error_message
from langgraph_convcoa.retrieval.shards.workers import check_opened, ended, threads_each

_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
}
"""No statistics are sent, and nothing is warned of that no actor here uses."""


class RayWorkers:
    """A connection to Ray, closed by `close` where it was made here.

    Ray unpickles what comes over its connections: whoever reaches a cluster can run code there. Its nodes must see the folders
    of their shards, and have this package.

    Args:
        address: Of a cluster; one is started on this machine, and ends with this process, when None.
    """

    def __init__(self, address: str | None = None) -> None:
        self.ray = _ray()
        self._mine = not self.ray.is_initialized()
        self.local = address is None
        if not self._mine:
            return
        # Without them it would listen on every interface.
        own = (
            {"address": "local", "_node_ip_address": "127.0.0.1", "include_dashboard": False}
            if self.local
            else {"address": address}
        )
        before = {name: os.environ.get(name) for name in _QUIET}
        os.environ.update({name: value for name, value in _QUIET.items() if before[name] is None})
        try:
            self.ray.init(**own, log_to_driver=False, logging_level="error", namespace="langgraph_convcoa")
        except Exception as error:
            self.ray.shutdown()
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
            raise RetrievalError(f"Ray cannot be used at {address or 'this machine'}: {reason.rstrip('.')}.") from error
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)

    def workers(
        self, paths: Sequence[Path], options: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None
    ) -> list[RayWorker]:
        """A worker for each path, with options of its actor."""
        given = options or {}
        each = [given] * len(paths) if isinstance(given, Mapping) else given
        if len(each) != len(paths):
            raise InputError(f"There are {len(paths)} shards and {len(each)} ray_options; give one of each, or one for all.")
        threads = threads_each(len(paths)) if self.local else 0
        return [RayWorker(self, path, one, threads) for path, one in zip(paths, each, strict=True)]

    def close(self) -> None:
        """End what was started here."""
        if self._mine:
            self._mine = False
            self.ray.shutdown()


class RayWorker:
    """An actor that maps an index, started at its first use and again after it has ended.

    Args:
        cluster: The connection.
        path: The folder of the index, as the actor's node sees it.
        options: Of the actor.
        threads: How many cores it computes on; all of its node's for 0.
        start_seconds: The time that starting it and opening the index may take.
    """

    def __init__(
        self, cluster: RayWorkers, path: Path, options: Mapping[str, Any], threads: int = 0, start_seconds: float = 600.0
    ) -> None:
        self.path, self.start_seconds = path, start_seconds
        self._cluster, self._options, self._threads = cluster, dict(options), threads
        self._actor: Any = None

    @property
    def name(self) -> str:
        """The folder."""
        return str(self.path)

    def start(self) -> None:
        """Start the actor and open the index where that is not done, or it has ended."""
        if self._actor is not None:
            return
        # An actor that names no processors is placed where there is one, and holds none: any number fits on a machine.
        options = {"scheduling_strategy": "SPREAD", "max_restarts": 0, **self._options}
        path = str(self.path.absolute()) if self._cluster.local else str(self.path)
        self._actor = self._cluster.ray.remote(_Actor).options(**options).remote(path, self._threads)
        check_opened(self, self.ask({"ask": "about"}, self.start_seconds))

    def ask(self, message: Message, seconds: float) -> Message:
        """The answer; the actor is killed where there is none in time."""
        errors = self._cluster.ray.exceptions
        actor = self._actor
        if actor is None:
            raise ended(self.name, None, "its actor was ended")
        try:
            answer: Message = self._cluster.ray.get(actor.answer.remote(message), timeout=seconds)
        except errors.GetTimeoutError:
            self.end()
            raise ended(self.name, seconds, "") from None
        except errors.RayError as error:
            self.end()
            raise ended(self.name, None, f"its actor ended ({type(error).__name__})") from None
        return answer

    def end(self) -> None:
        """Kill the actor."""
        actor, self._actor = self._actor, None
        if actor is not None and self._cluster.ray.is_initialized():
            self._cluster.ray.kill(actor, no_restart=True)


class _Actor:
    """What runs on a node: a shard, opened at the first message so that its errors are answers."""

    def __init__(self, path: str, threads: int) -> None:
        if threads:
            os.environ["OMP_NUM_THREADS"] = str(threads)
        else:
            # Ray sets it to 1 for an actor that names no processors.
            os.environ.pop("OMP_NUM_THREADS", None)
        self._path = path
        self._shard: Shard | None = None

    def answer(self, message: Message) -> Message:
        if self._shard is None:
            try:
                self._shard = Shard(Index(self._path))
            except Exception as error:  # noqa: BLE001 - whatever it is, who asked hears of it
                return error_message(error)
        return self._shard.answer(message)


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise RetrievalError('Shards on Ray need the extra `ray`: pip install "langgraph-convcoa[ray]".') from None
    return ray
