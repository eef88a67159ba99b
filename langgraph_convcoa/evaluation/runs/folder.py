"""The folder of a run: its settings, its answers line by line, and the cached replies of the model."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock, Timeout

from langgraph_convcoa.errors import InputError, first_line
from langgraph_convcoa.evaluation.records import ANSWERED, Answered
from langgraph_convcoa.evaluation.runs.reply_cache import ReplyCache
from langgraph_convcoa.files import private_file, private_folder, remove_remains, replacing

MAY_CHANGE = ("methods", "judge", "judge_base_url")
"""Settings that may change when a run resumes: the methods and the judge."""

ANSWERS, REPLIES = "answers.jsonl", "replies.sqlite"
"""Files of a run: the answers line by line, and the replies of the model."""

_SETTINGS, _LOCK = "settings.json", "run.lock"
_JUDGEMENTS = "judgements.jsonl"
# The settings are removed last: after a kill, answers that were not removed yet still have their settings.
_OWN = (ANSWERS, REPLIES, f"{REPLIES}-wal", f"{REPLIES}-shm", _JUDGEMENTS, "report.json", "report.md", _SETTINGS)


class RunFolder:
    """A run on disk, written by one process at a time; a context manager.

    `settings.json` describes the run, `answers.jsonl` has a line for each question and method, `replies.sqlite` the model's
    replies. A line that a kill cut off is dropped, and its question is asked again. Raises InputError if the folder has other
    settings (except `MAY_CHANGE`), holds something else, or is written to by another process.
    """

    def __init__(self, path: str | Path, settings: Mapping[str, Any], *, fresh: bool = False) -> None:
        self.path = Path(path)
        self.settings = json.loads(json.dumps(settings))
        self._file = self.path / ANSWERS
        known = (self.path / _SETTINGS).is_file()
        if self.path.exists() and not known and (not self.path.is_dir() or _foreign(self.path)):
            raise InputError(f"{self.path} exists and holds no run: name another folder with --out")
        with self._writable():
            private_folder(self.path)
            self._lock = FileLock(self.path / _LOCK, timeout=0, mode=0o600)
            try:
                self._lock.acquire()
            except Timeout as error:
                raise InputError(f"another process is writing to {self.path}: wait for it, or name another folder") from error
        try:
            with self._writable():
                self._answers = self._open(known, fresh)
            self.replies = ReplyCache(self.path / REPLIES)
        except BaseException:
            self._lock.release()
            raise

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_error: object) -> None:
        self._answers.close()
        self.replies.close()
        self._lock.release()

    def append(self, answered: Answered) -> None:
        """Write an answer; it is on disk when this returns."""
        line = json.dumps(asdict(answered), ensure_ascii=False, separators=(",", ":")) + "\n"
        with self._writable():
            self._answers.write(line.encode("utf-8", "replace"))
            self._answers.flush()
            os.fsync(self._answers.fileno())

    def answers(self, methods: Collection[str] | None = None) -> Iterator[Answered]:
        """The answers of some methods, or all, in the order of writing; read one at a time."""
        return (record for _, record in self._lines() if methods is None or record.method in methods)

    def write_judgements(self, lines: Iterable[str]) -> None:
        """Write the verdicts of a judge. They replace earlier verdicts all at once."""
        with self._writable(), replacing(self.path / _JUDGEMENTS, private=True) as part:
            part.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", errors="replace", newline="\n")

    def drop_failed(self) -> int:
        """Drop the questions that failed and the later ones of their conversations; returns their number."""
        failed: set[tuple[str, str]] = set()
        dropped = 0
        with replacing(self._file) as kept, kept.open("wb") as out:
            for line, record in self._lines():
                key = (record.method, record.conversation)
                if record.error:
                    failed.add(key)
                if key in failed:
                    dropped += 1
                else:
                    out.write(line)
        self._answers.close()
        self._answers = self._file.open("ab")
        return dropped

    def _lines(self) -> Iterator[tuple[bytes, Answered]]:
        self._answers.flush()
        with self._file.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                try:
                    yield line, ANSWERED.validate_json(line)
                except ValueError as error:
                    where, reason = f"{self._file}, line {number}", first_line(error)
                    raise InputError(f"{where}: not an answer of a run ({reason}): start again with --fresh") from error

    def _open(self, known: bool, fresh: bool) -> BinaryIO:
        if fresh:
            for name in _OWN:
                (self.path / name).unlink(missing_ok=True)
        elif known:
            self._compare()
        for name in (_SETTINGS, ANSWERS, _JUDGEMENTS):
            remove_remains(self.path / name)
        with replacing(self.path / _SETTINGS, private=True) as part:
            part.write_text(json.dumps(self.settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        if self._file.exists():
            with self._file.open("r+b") as stream:
                # Only the last line can be cut off.
                stream.truncate(sum(len(line) for line in stream if line.endswith(b"\n")))
        private_file(self._file)
        return self._file.open("ab")

    def _compare(self) -> None:
        path = self.path / _SETTINGS
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} is damaged ({error}): start again with --fresh, or name another folder") from error
        if not isinstance(found, dict):
            found = {"format": found}
        for name in {**self.settings, **found}:
            then, now = (json.dumps(settings.get(name)) for settings in (found, self.settings))
            if then != now and name not in MAY_CHANGE:
                raise InputError(
                    f"the run in {self.path} was made with {' '.join(name.split())} = {then}, not {now}: give the same "
                    "settings to resume it, name another folder with --out, or start again with --fresh"
                )

    @contextmanager
    def _writable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or error
            raise InputError(f"the run cannot be kept in {self.path} ({reason}): name another folder with --out") from error


def _foreign(path: Path) -> bool:
    return any(entry.name not in (*_OWN, _LOCK) and not entry.name.startswith(f".{_SETTINGS}.") for entry in path.iterdir())
