"""The folder of a run: its settings, its answers line by line, and the cached replies of the model."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from filelock import FileLock, Timeout

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.records import Answered
from langgraph_convcoa.evaluation.runs.reply_cache import ReplyCache
from langgraph_convcoa.files import private_file, private_folder, remove_remains, replacing

MAY_CHANGE = ("methods", "sweeps", "rows", "judge", "judge_base_url", "judge_by")
"""Settings of which an answer does not depend: more rows may join a run, and a judge one that has none."""

_SETTINGS, _ANSWERS, _REPLIES, _LOCK = "settings.json", "answers.jsonl", "replies.sqlite", "run.lock"
_JUDGEMENTS = "judgements.jsonl"
_OWN = (
    *(_SETTINGS, _ANSWERS, _REPLIES, f"{_REPLIES}-wal", f"{_REPLIES}-shm", _JUDGEMENTS),
    *("report.json", "report.md", "report.html"),
)


class RunFolder:
    """A run on disk, to be written by one process at a time; as a context manager it closes itself.

    `settings.json` says what the run is, `answers.jsonl` has a line for each question and method, on disk before the next one
    counts, and `replies.sqlite` the model's replies. A line that a kill tore is dropped, its question asked again.
    A folder with other settings (but `MAY_CHANGE`), with something else in it, or that another process writes to is refused
    (InputError). `judged` says whether a judge was asked for GPT-EM in earlier starts of the run.
    """

    def __init__(self, path: str | Path, settings: Mapping[str, Any], *, fresh: bool = False) -> None:
        self.path = Path(path)
        self.settings = json.loads(json.dumps(settings))
        self.judged = False
        self._file = self.path / _ANSWERS
        known = (self.path / _SETTINGS).is_file()
        if self.path.exists() and not known and (not self.path.is_dir() or _foreign(self.path)):
            raise InputError(f"{self.path} exists and holds no run: name another folder with --out")
        try:
            private_folder(self.path)
            self._lock = FileLock(self.path / _LOCK, timeout=0, mode=0o600)
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
        """All answers, in the order of writing; read as they are needed."""
        return (record for _, _, record in self._lines())

    def places(self) -> dict[str, list[int]]:
        """Where in the file the answers of each method begin, to read one method's at a time."""
        found: dict[str, list[int]] = {}
        for place, _, record in self._lines():
            found.setdefault(record.method, []).append(place)
        return found

    def answers_at(self, places: list[int]) -> list[Answered]:
        """The answers that begin there."""
        with self._file.open("rb") as stream:
            records = []
            for place in places:
                stream.seek(place)
                records.append(Answered.from_dict(json.loads(stream.readline())))
            return records

    def write_judgements(self, lines: Iterable[str]) -> None:
        """Write a judge's verdicts on the answers, in place of earlier ones, all at once."""
        try:
            with replacing(self.path / _JUDGEMENTS, private=True) as part:
                part.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", errors="replace", newline="\n")
        except OSError as error:
            raise self._unwritable(error) from error

    def drop_failed(self, measure: str | None = None) -> int:
        """Forget the questions that failed, and what came after them in their conversations; how many that are.

        Answers that could have `measure` and have it not, a judge's verdict, count as failed too.
        """
        failed: set[tuple[str, str]] = set()
        dropped = 0
        with replacing(self._file) as kept, kept.open("wb") as out:
            for _, line, record in self._lines():
                key = (record.method, record.conversation)
                if record.error or (measure is not None and record.references and measure not in record.metrics):
                    failed.add(key)
                if key in failed:
                    dropped += 1
                else:
                    out.write(line)
        self._answers.close()
        self._answers = self._file.open("ab")
        return dropped

    def _lines(self) -> Iterator[tuple[int, bytes, Answered]]:
        """Each line's place, its bytes and its record."""
        self._answers.flush()
        place = 0
        with self._file.open("rb") as stream:
            for number, line in enumerate(stream, 1):
                try:
                    yield place, line, Answered.from_dict(json.loads(line))
                except (ValueError, KeyError, TypeError, RecursionError) as error:
                    where = f"{self._file}, line {number}"
                    raise InputError(
                        f"{where}: not an answer of a run ({_first_line(error)}): start again with --fresh"
                    ) from error
                place += len(line)

    def _open(self, known: bool, fresh: bool) -> BinaryIO:
        try:
            if fresh:
                for name in _OWN:
                    (self.path / name).unlink(missing_ok=True)
            elif known:
                self._compare()
            for name in (_SETTINGS, _ANSWERS, _JUDGEMENTS):
                remove_remains(self.path / name)
            with replacing(self.path / _SETTINGS, private=True) as part:
                part.write_text(json.dumps(self.settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
            self._drop_torn_line()
            private_file(self._file)
            return self._file.open("ab")
        except OSError as error:
            raise self._unwritable(error) from error

    def _compare(self) -> None:
        path = self.path / _SETTINGS
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} is damaged ({error}): start again with --fresh, or name another folder") from error
        if not isinstance(found, dict):
            found = {"format": found}
        other = [name for name in {**self.settings, **found} if found.get(name) != self.settings.get(name)]
        had_judge, has_judge = found.get("judge") is not None, self.settings.get("judge") is not None
        self.judged = had_judge and "em" in (found.get("judge_by") or ["em"])
        of_judge = ("judge", "judge_base_url") if had_judge and has_judge else ()
        fixed = [name for name in other if name not in MAY_CHANGE or name in of_judge]
        if fixed:
            name = " ".join(fixed[0].split())
            then, now = (json.dumps(settings.get(fixed[0])) for settings in (found, self.settings))
            raise InputError(
                f"the run in {self.path} was made with {name} = {then}, not {now}: give the same settings to resume it, "
                "name another folder with --out, or start again with --fresh"
            )
        if had_judge and not has_judge:
            # Its verdicts stay, and another judge's must not join them.
            self.settings |= {name: found.get(name) for name in ("judge", "judge_base_url")}
            self.settings |= {"judge_by": found["judge_by"]} if "judge_by" in found else {}
        elif self.judged and "em" not in (by := self.settings.get("judge_by") or ["em"]):
            self.settings["judge_by"] = ["em", *by]

    def _drop_torn_line(self) -> None:
        if not self._file.exists():
            return
        with self._file.open("r+b") as stream:
            # Only the last line can be without its end.
            stream.truncate(sum(len(line) for line in stream if line.endswith(b"\n")))

    def _unwritable(self, error: OSError) -> InputError:
        return InputError(f"the run cannot be kept in {self.path} ({error.strerror or error}): name another folder with --out")


def read_run(path: str | Path) -> tuple[list[Answered], list[str]]:
    """The answers of a run, and the texts of the model's replies; nothing is written. InputError where there is no run."""
    place = Path(path)
    try:
        # By line feeds alone: an answer may hold other separators of lines.
        lines = [line for line in (place / _ANSWERS).read_text(encoding="utf-8").split("\n") if line]
        answers = [Answered.from_dict(json.loads(line)) for line in lines]
        if not (place / _REPLIES).is_file():
            raise ValueError(f"it has no {_REPLIES}")
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"{place} holds no run of convcoa evaluate qa ({_first_line(error)}): name a run's folder."
        ) from error
    with closing(ReplyCache(place / _REPLIES)) as replies:
        return answers, list(replies.texts())


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def _foreign(path: Path) -> bool:
    return any(entry.name not in (*_OWN, _LOCK) and not entry.name.startswith(f".{_SETTINGS}.") for entry in path.iterdir())
