"""The folder of a run: settings, answers line by line, and cached replies, so that a resumed run pays for no reply twice."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from filelock import FileLock, Timeout
from langchain_core.caches import RETURN_VAL_TYPE, BaseCache
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, message_to_dict, messages_from_dict
from langchain_core.outputs import ChatGeneration, Generation

from langgraph_convcoa.errors import InputError, ModelError, first_line
from langgraph_convcoa.evaluation.records import ANSWERED, Answered
from langgraph_convcoa.files import open_sqlite, prepare_sqlite, private_file, private_folder, remove_remains, replacing

MAY_CHANGE = ("methods", "judge", "judge_base_url")  # Settings that may change when a run resumes: the methods and the judge.
ANSWERS, REPLIES = "answers.jsonl", "replies.sqlite"  # Files of a run: the answers line by line, and the replies of the model.
_SETTINGS, _LOCK = "settings.json", "run.lock"
_JUDGEMENTS = "judgements.jsonl"
# The settings are removed last: after a kill, answers that were not removed yet still have their settings.
_OWN = (ANSWERS, REPLIES, f"{REPLIES}-wal", f"{REPLIES}-shm", _JUDGEMENTS, "report.json", "report.md", _SETTINGS)
KEPT = "convcoa_kept"  # Key in the generation's info of a cached reply: the seconds that the reply took at first.
_STAMP = (0x434F5251, 2)
_TABLE = "CREATE TABLE replies (key BLOB PRIMARY KEY, reply TEXT, tokens INTEGER, seconds REAL)"
# If a request has several replies, the first stays, since it may be in use. All replies were paid for: their tokens add up.
_KEEP = "INSERT INTO replies VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET tokens = tokens + excluded.tokens"
# Fields that differ between replies of the same text. A prompt may contain replies; these fields are not part of its key.
_PASSING = ("id", "response_metadata", "usage_metadata")
_CHARACTERS_PER_TOKEN = 4
_Model = TypeVar("_Model", bound=BaseChatModel)


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
        if self.path.exists() and not known and (not self.path.is_dir() or not all(map(_is_own, self.path.iterdir()))):
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
        """Drop failed questions and the later questions of their conversations. Returns the number of dropped answers."""
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


def _is_own(entry: Path) -> bool:
    return entry.name in (*_OWN, _LOCK) or entry.name.startswith(f".{_SETTINGS}.")


class ReplyCacheError(InputError):
    """The replies cannot be read or kept, so the run must stop."""


class ReplyCache(BaseCache):
    """A LangChain cache of replies in an SQLite file.

    The key is a digest of the messages and of the model with its settings, but no API key. A reply is on disk before the
    method gets it. After a kill, only calls without a stored reply are made again.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._asked: dict[bytes, float] = {}
        with self._usable():
            # Autocommit: each reply is a transaction of its own.
            private_file(self.path)
            self._file = open_sqlite(self.path, autocommit=True, any_thread=True)
            if prepare_sqlite(self._file, *_STAMP, [_TABLE]) != _STAMP:
                self._file.close()
                raise ReplyCacheError(f"{self.path} holds no replies of this version: name another folder, or --fresh")
            self.tokens: int = self._file.execute("SELECT coalesce(sum(tokens), 0) FROM replies").fetchone()[0]

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    def lookup(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        """The cached reply to a request, or None."""
        key = _key(prompt, llm_string)
        with self._lock, self._usable():
            row = self._file.execute("SELECT reply, seconds FROM replies WHERE key = ?", (key,)).fetchone()
            if row is None:
                self._asked[key] = time.perf_counter()
                return None
            text, seconds = row
            messages = messages_from_dict(json.loads(text))
        return [ChatGeneration(message=message, generation_info={KEPT: seconds}) for message in messages]

    def update(self, prompt: str, llm_string: str, return_val: Sequence[Generation]) -> None:
        """Keep a reply."""
        messages = [generation.message for generation in return_val if isinstance(generation, ChatGeneration)]
        if len(messages) < len(return_val) or not messages:
            return
        text = json.dumps([_plain(message_to_dict(message)) for message in messages], ensure_ascii=False)
        key, now = _key(prompt, llm_string), time.perf_counter()
        tokens = sum(_tokens(message, prompt) for message in messages)
        with self._lock, self._usable():
            self._file.execute(_KEEP, (key, text, tokens, now - self._asked.pop(key, now)))
            self.tokens += tokens

    def clear(self, **kwargs: Any) -> None:
        """Forget all replies."""
        with self._lock:
            self._file.execute("DELETE FROM replies")
            self.tokens = 0

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except ReplyCacheError:
            raise
        except (sqlite3.Error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            fault = f"the model replies in {self.path} cannot be used ({error})"
            raise ReplyCacheError(f"{fault}: name another folder, or --fresh") from error


def keep_replies(model: _Model, cache: ReplyCache) -> _Model:
    """Copy a model so that its replies are cached; the copy does not stream, since LangChain caches no streams.

    Raises ModelError if the model is wrapped, such as in fallbacks: a run's figures describe a single model.
    """
    given: object = model
    if not isinstance(given, BaseChatModel):
        raise ModelError(f"an evaluation is of one chat model, not of {type(given).__name__}: give the model in it")
    kept = model.model_copy(update={"cache": cache, "disable_streaming": True})
    # The model's description is part of the key. LangChain's cached description would depend on the model's earlier uses.
    kept.__dict__.pop("_serialized", None)
    return kept


def _key(prompt: str, llm_string: str) -> bytes:
    messages = json.loads(prompt)
    for message in messages:
        fields = message.get("kwargs", {})
        for name in _PASSING:
            fields.pop(name, None)
        more = fields.get("additional_kwargs")
        if isinstance(more, dict):
            more.pop("parsed", None)
            more.pop("refusal", None)
            if not more:
                del fields["additional_kwargs"]
    # The 0 stays because the keys of earlier releases have it.
    material = json.dumps([messages, llm_string, 0], sort_keys=True)
    return hashlib.sha256(material.encode("utf-8", "surrogatepass")).digest()


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    """The message as JSON data; providers' own objects in the extra fields are left out."""
    data = message["data"]
    for name in ("additional_kwargs", "response_metadata"):
        text = json.dumps(data.get(name) or {}, default=lambda _object: None, skipkeys=True)
        data[name] = {key: value for key, value in json.loads(text).items() if value is not None}
    return message


def _tokens(message: BaseMessage, prompt: str) -> int:
    usage = message.usage_metadata if isinstance(message, AIMessage) else None
    if usage:
        return int(usage["input_tokens"]) + int(usage["output_tokens"])
    return (len(prompt) + len(message.text)) // _CHARACTERS_PER_TOKEN
