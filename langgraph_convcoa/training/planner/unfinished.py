"""The folder of an unfinished training of a planner: its last whole checkpoint, and the rows of its steps up to there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from langgraph_convcoa.errors import InputError, ModelError
from langgraph_convcoa.files import replacing

CONFIG, CURVE, PLANS = "planner.json", "training.jsonl", "plans.jsonl"
_STATE = "trainer_state.json"
# What tells that the rest is a training's is removed last.
_WRITTEN = (CURVE, PLANS, "checkpoint-[0-9]*", ".*.partial", CONFIG)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """For the one training of a folder: InputError where another process is at it. The system frees its lock after a kill."""
    lock = FileLock(folder.with_name(f"{folder.name}.lock"), timeout=0, mode=0o600)
    try:
        lock.acquire()
    except Timeout:
        raise InputError(f"Another training writes to {folder}: wait for its end, or name another --out.") from None
    except OSError as error:
        raise ModelError(f"{lock.lock_file} cannot be written ({error.strerror}): name another folder.") from error
    try:
        yield
    finally:
        # While it is held, so that it is not the lock of the next one.
        with suppress(OSError):
            Path(lock.lock_file).unlink()
        lock.release()


def holds_others(folder: Path) -> bool:
    """Whether a folder holds files that no training wrote: all are, where none tells of a training."""
    told = (folder / CONFIG).is_file()
    ours = {place for pattern in _WRITTEN for place in folder.glob(pattern)} if told else set()
    return folder.is_dir() and any(place not in ours for place in folder.iterdir())


def clear(folder: Path) -> None:
    """Remove what a training wrote, and the folder where that is all."""
    for place in [place for pattern in _WRITTEN for place in folder.glob(pattern)]:
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    with suppress(OSError):
        folder.rmdir()


def check_same(path: Path, given: dict[str, Any]) -> None:
    """Raise InputError where a training is resumed with other settings than it was started with."""
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(known, dict):
            raise ValueError("no object")
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} is missing or damaged ({error}): delete {path.parent} to start again.") from error
    free = {"command", "checkpoint_every"}
    # What an earlier version did not tell cannot be compared.
    was, now = (_flat({name: told.get(name) for name in known}) for told in (known, given))
    for name in sorted((was.keys() | now.keys()) - free):
        if was.get(name) != now.get(name):
            raise InputError(
                f"The training in {path.parent} was started with {name} = {was.get(name)!r}, not {now.get(name)!r}: give the "
                "same, or delete it to start again."
            )


def last_checkpoint(folder: Path) -> Path | None:
    """The last whole checkpoint: its state is written last."""
    found = {}
    for place in folder.glob("checkpoint-*"):
        try:
            json.loads((place / _STATE).read_text(encoding="utf-8"))
            found[step_of(place)] = place
        except (OSError, ValueError):
            continue
    return found[max(found)] if found else None


def step_of(checkpoint: Path) -> int:
    """The step after which a checkpoint was written."""
    return int(checkpoint.name.rpartition("-")[2])


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of steps, but for one that a killed run was writing."""
    lines = [line for line in path.read_text(encoding="utf-8").split("\n") if line] if path.exists() else []
    rows = []
    for line in lines:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def cut(path: Path, upto: int) -> None:
    """Remove the rows of the steps after a checkpoint, which are trained again."""
    rows = [row for row in read_rows(path) if row["step"] <= upto]
    with replacing(path) as partial:
        partial.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def _flat(told: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for part, held in told.items()
        for name, value in (held.items() if isinstance(held, dict) else [(part, held)])
    }
