"""Model replies on disk by request, so that a run that is started again pays for none of them twice."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from langchain_core.caches import RETURN_VAL_TYPE, BaseCache
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, message_to_dict, messages_from_dict
from langchain_core.outputs import ChatGeneration, Generation

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.methods.base import SAMPLE

KEPT = "convcoa_kept"
"""In a generation's info where the reply is a kept one: when it was asked for and when it came, in seconds since 1970."""

_APPLICATION_ID = 0x434F5251
_VERSION = 1
# Of a request that was made several times at once the first reply stays, which may have been used; all of them were paid for.
_KEEP = "INSERT INTO replies VALUES (?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET tokens = tokens + excluded.tokens"
# What tells one reply from another of the same text: a reply that goes into the next prompt must not change its key.
_PASSING = ("id", "response_metadata", "usage_metadata")
_CHARACTERS_PER_TOKEN = 4
_Model = TypeVar("_Model", bound=BaseChatModel)


class ReplyCacheError(InputError):
    """The replies cannot be read or kept: a run that went on would pay for what it loses."""


class ReplyCache(BaseCache):
    """Replies in an SQLite file, as JSON; a LangChain cache.

    The key is a digest of the messages, the model with its settings (a key is none of them) and the number of the sample
    (`methods.base.SAMPLE`), so that the file holds no prompt. A reply is on disk before whoever asked gets it.

    Args:
        path: The file; made when missing.

    Raises:
        ReplyCacheError: The file is damaged, is no such cache, or cannot be opened; or, later, read or written.

    Example:
        >>> import pathlib, tempfile
        >>> from langchain_core.language_models import FakeListChatModel
        >>> cache = ReplyCache(pathlib.Path(tempfile.mkdtemp()) / "replies.sqlite")
        >>> model = keep_replies(FakeListChatModel(responses=["first", "second"]), cache)
        >>> model.invoke("Who?").text, model.invoke("Who?").text, cache.replies
        ('first', 'first', 1)
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._asked: dict[bytes, float] = {}
        try:
            # Autocommit: each reply is a transaction of its own.
            self._file = sqlite3.connect(self.path, timeout=30.0, isolation_level=None, check_same_thread=False)
            self._prepare()
            self.replies, self.tokens = self._file.execute("SELECT count(*), coalesce(sum(tokens), 0) FROM replies").fetchone()
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    def lookup(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        """The reply that is kept of a request, or None."""
        key = _key(prompt, llm_string)
        with self._lock:
            try:
                row = self._file.execute("SELECT reply, asked, came FROM replies WHERE key = ?", (key,)).fetchone()
            except sqlite3.Error as error:
                raise self._unusable(error) from error
            if row is None:
                self._asked[key] = time.time()
                return None
        text, asked, came = row
        try:
            messages = messages_from_dict(json.loads(text))
        except (ValueError, KeyError, TypeError) as error:
            raise self._unusable(error) from error
        return [ChatGeneration(message=message, generation_info={KEPT: [asked, came]}) for message in messages]

    def update(self, prompt: str, llm_string: str, return_val: Sequence[Generation]) -> None:
        """Keep a reply."""
        messages = [generation.message for generation in return_val if isinstance(generation, ChatGeneration)]
        if len(messages) < len(return_val) or not messages:
            return
        text = json.dumps([_plain(message_to_dict(message)) for message in messages], ensure_ascii=False)
        key, came = _key(prompt, llm_string), time.time()
        tokens = sum(_tokens(message, prompt) for message in messages)
        with self._lock:
            asked = self._asked.pop(key, came)
            try:
                known = self._file.execute("SELECT 1 FROM replies WHERE key = ?", (key,)).fetchone() is not None
                self._file.execute(_KEEP, (key, text, tokens, asked, came))
            except sqlite3.Error as error:
                raise self._unusable(error) from error
            self.replies += not known
            self.tokens += tokens

    async def alookup(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        """As `lookup`; it takes well under a millisecond, less than a thread would."""
        return self.lookup(prompt, llm_string)

    async def aupdate(self, prompt: str, llm_string: str, return_val: Sequence[Generation]) -> None:
        """As `update`."""
        self.update(prompt, llm_string, return_val)

    def clear(self, **kwargs: Any) -> None:
        """Forget all replies."""
        with self._lock:
            self._file.execute("DELETE FROM replies")
            self.replies = self.tokens = 0

    def _prepare(self) -> None:
        self._file.execute("PRAGMA journal_mode=WAL")
        if self._file.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone() is None:
            self._file.execute(
                "CREATE TABLE IF NOT EXISTS replies (key BLOB PRIMARY KEY, reply TEXT, tokens INTEGER, asked REAL, came REAL)"
            )
            self._file.execute(f"PRAGMA application_id={_APPLICATION_ID}")
            self._file.execute(f"PRAGMA user_version={_VERSION}")
        found = [self._file.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
        if found != [_APPLICATION_ID, _VERSION]:
            self._file.close()
            raise ReplyCacheError(
                f"{self.path} holds no model replies of this version: name another folder with --out, or --fresh"
            )

    def _unusable(self, error: Exception) -> ReplyCacheError:
        return ReplyCacheError(f"the model replies in {self.path} cannot be used ({error}): name another folder, or --fresh")


def keep_replies(model: _Model, cache: ReplyCache) -> _Model:
    """A copy of a model whose replies are kept; it does not stream, since LangChain caches no streams."""
    kept = model.model_copy(update={"cache": cache, "disable_streaming": True})
    # The copy carries along what the model computed of itself, which is part of the key and would depend on its past.
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
    material = json.dumps([messages, llm_string, SAMPLE.get()], sort_keys=True)
    return hashlib.sha256(material.encode("utf-8", "surrogatepass")).digest()


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    """The message as JSON data, without what is none: providers put objects of their own into the extra fields."""
    data = message["data"]
    for name in ("additional_kwargs", "response_metadata"):
        data[name] = {key: value for key, value in (data.get(name) or {}).items() if _is_json(value)}
    return message


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


def _tokens(message: Any, prompt: str) -> int:
    usage = message.usage_metadata if isinstance(message, AIMessage) else None
    if usage:
        return int(usage["input_tokens"]) + int(usage["output_tokens"])
    return (len(prompt) + len(message.text)) // _CHARACTERS_PER_TOKEN
