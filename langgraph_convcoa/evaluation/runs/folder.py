"""The folder of a run: its settings, its answers line by line, and the replies that they came of."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from filelock import FileLock, Timeout

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.records import Answered
from langgraph_convcoa.evaluation.runs.reply_cache import ReplyCache

_SETTINGS, _ANSWERS, _REPLIES, _LOCK = "settings.json", "answers.jsonl", "replies.sqlite", "run.lock"
MAY_CHANGE = ("methods", "sweeps", "rows", "judge", "judge_base_url")
"""Settings of which an answer does not depend: more rows may join a run, and a judge one that has none."""
_OWN = (_SETTINGS, _ANSWERS, _REPLIES, f"{_REPLIES}-wal", f"{_REPLIES}-shm", "report.json", "report.md", "report.html")


class RunFolder:
    """A run on disk, to be written by one process at a time; as a context manager it closes itself.

    `settings.json` says what the run is, `answers.jsonl` has a line for each question and method, on disk before the next one
    counts, and `replies.sqlite` the model's replies. A line that a kill tore is dropped, its question asked again.

    Args:
        path: The folder; made when missing.
        settings: What decides the answers. A folder that was made with other settings is refused; other methods and sweeps are
            none, their answers stand side by side, nor is a judge where there was none.
        fresh: Begin anew, whatever the folder holds of an earlier run.

    Attributes:
        judged: Whether a judge gave verdicts in earlier starts of the run.

    Raises:
        InputError: The folder holds a run with other settings, or something else; another process is writing into it; or it
            cannot be read or written.
    """

    def __init__(self, path: str | Path, settings: Mapping[str, Any], *, fresh: bool = False) -> None:
        self.path = Path(path)
        self.settings = json.loads(json.dumps(settings))
        self.judged = False
        known = (self.path / _SETTINGS).is_file()
        if self.path.exists() and not known and (not self.path.is_dir() or _foreign(self.path)):
            raise InputError(f"{self.path} exists and holds no run: name another folder with --out")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(self.path / _LOCK, timeout=0)
            self._lock.acquire()
        except Timeout as error:
            raise InputError(f"another process is writing to {self.path}: wait for it, or name another folder") from error
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            self._answers = self._open(known, fresh)
            self.replies = ReplyCache(self.path / _REPLIES)
        except BaseException:
            self._lock.release()
            raise

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._answers.close()
        self.replies.close()
        self._lock.release()

    def append(self, answered: Answered) -> None:
        """Write an answer down; it is on disk when this returns."""
        line = json.dumps(answered.to_dict(), ensure_ascii=False, separators=(",", ":")) + "\n"
        try:
            self._answers.write(line.encode("utf-8", "replace"))
            self._answers.flush()
            os.fsync(self._answers.fileno())
        except OSError as error:
            raise self._unwritable(error) from error

    def answers(self) -> Iterator[Answered]:
        """All that is written down, in the order of writing; read as it is needed."""
        return (_record(line, self._file, number) for number, (_, line) in enumerate(self._lines(), 1))

    def places(self) -> dict[str, list[int]]:
        """Where in the file the answers of each method begin, to read one method's at a time."""
        found: dict[str, list[int]] = {}
        for number, (place, line) in enumerate(self._lines(), 1):
            found.setdefault(_record(line, self._file, number).method, []).append(place)
        return found

    def answers_at(self, places: list[int]) -> list[Answered]:
        """The answers that begin there."""
        with self._file.open("rb") as stream:
            records = []
            for place in places:
                stream.seek(place)
                records.append(_record(stream.readline(), self._file, 0))
            return records

    def drop_failed(self, measure: str | None = None) -> int:
        """Forget the questions that failed, and what came after them in their conversations; how many that are.

        Args:
            measure: Answers that could have this measure and have it not, a judge's verdict, count as failed too.
        """
        failed: set[tuple[str, str]] = set()
        kept, dropped = self._file.with_suffix(".part"), 0
        with kept.open("wb") as out:
            for number, (_, line) in enumerate(self._lines(), 1):
                record = _record(line, self._file, number)
                key = (record.method, record.conversation)
                if record.error or (measure is not None and record.references and measure not in record.metrics):
                    failed.add(key)
                if key in failed:
                    dropped += 1
                else:
                    out.write(line)
            out.flush()
            os.fsync(out.fileno())
        self._answers.close()
        kept.replace(self._file)
        self._answers = self._file.open("ab")
        return dropped

    @property
    def _file(self) -> Path:
        return self.path / _ANSWERS

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        self._answers.flush()
        place = 0
        with self._file.open("rb") as stream:
            for line in stream:
                yield place, line
                place += len(line)

    def _open(self, known: bool, fresh: bool) -> BinaryIO:
        try:
            if fresh:
                for name in _OWN:
                    (self.path / name).unlink(missing_ok=True)
            if known and not fresh:
                self._compare()
            part = self.path / f"{_SETTINGS}.part"
            part.write_text(json.dumps(self.settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
            part.replace(self.path / _SETTINGS)
            self._drop_torn_line()
            return self._file.open("ab")
        except OSError as error:
            raise self._unwritable(error) from error

    def _compare(self) -> None:
        path = self.path / _SETTINGS
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise InputError(f"{path} is damaged ({error}): begin anew with --fresh, or name another folder") from error
        names = [*self.settings, *(name for name in found if name not in self.settings)] if isinstance(found, dict) else []
        other = [name for name in names if found.get(name) != self.settings.get(name)]
        judged = isinstance(found, dict) and found.get("judge") is not None and self.settings.get("judge") is not None
        fixed = [name for name in other if name not in MAY_CHANGE or (judged and name.startswith("judge"))]
        if isinstance(found, dict) and not fixed:
            self.judged = found.get("judge") is not None
            if self.judged and self.settings.get("judge") is None:
                # Its verdicts stay, and another judge's must not join them.
                self.settings |= {name: found.get(name) for name in ("judge", "judge_base_url")}
            return
        name = fixed[0] if fixed else "format"
        then, now = ((value.get(name) if isinstance(value, dict) else value) for value in (found, self.settings))
        raise InputError(
            f"the run in {self.path} was made with {name} = {json.dumps(then)}, not {json.dumps(now)}: give the same settings "
            "to go on with it, name another folder with --out, or begin anew with --fresh"
        )

    def _drop_torn_line(self) -> None:
        if not self._file.exists():
            return
        with self._file.open("r+b") as stream:
            end = size = stream.seek(0, os.SEEK_END)
            while end:
                start = max(0, end - 65536)
                stream.seek(start)
                newline = stream.read(end - start).rfind(b"\n")
                if newline >= 0:
                    end = start + newline + 1
                    break
                end = start
            if end < size:
                stream.truncate(end)

    def _unwritable(self, error: OSError) -> InputError:
        return InputError(f"the run cannot be kept in {self.path} ({error.strerror or error}): name another folder with --out")


def _record(line: bytes, path: Path, number: int) -> Answered:
    try:
        return Answered.from_dict(json.loads(line))
    except (ValueError, KeyError, TypeError) as error:
        where = f"{path}, line {number}" if number else str(path)
        raise InputError(f"{where}: not an answer of a run ({error}): begin anew with --fresh") from error


def _foreign(path: Path) -> bool:
    return any(entry.name not in (*_OWN, _LOCK, f"{_SETTINGS}.part") for entry in path.iterdir())
