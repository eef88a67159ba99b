"""The reply cache: model replies on disk by request, so a resumed run pays for no reply twice."""

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
from langchain_core.messages import AIMessage, BaseMessage, message_to_dict, messages_from_dict
from langchain_core.outputs import ChatGeneration, Generation

from langgraph_convcoa.errors import InputError, ModelError
from langgraph_convcoa.files import open_sqlite, prepare_sqlite, private_file

KEPT = "convcoa_kept"
"""Key in the generation's info of a cached reply: the seconds that the reply took at first."""

_STAMP = (0x434F5251, 2)
_TABLE = "CREATE TABLE replies (key BLOB PRIMARY KEY, reply TEXT, tokens INTEGER, seconds REAL)"
# If a request was made several times at once, the first reply stays, since it may be in use. All replies were paid for.
_KEEP = "INSERT INTO replies VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET tokens = tokens + excluded.tokens"
# Fields that differ between replies of the same text. They must not change the key of a prompt that holds a reply.
_PASSING = ("id", "response_metadata", "usage_metadata")
_CHARACTERS_PER_TOKEN = 4
_Model = TypeVar("_Model", bound=BaseChatModel)


class ReplyCacheError(InputError):
    """The replies cannot be read or kept, so the run must stop."""


class ReplyCache(BaseCache):
    """A LangChain cache of replies in an SQLite file.

    The key is a digest of the messages and of the model with its settings, but no API key. A reply is on disk before the
    method gets it. Only a call under way at a kill is made again.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._asked: dict[bytes, float] = {}
        try:
            # Autocommit: each reply is a transaction of its own.
            private_file(self.path)
            self._file = open_sqlite(self.path, autocommit=True, any_thread=True)
            if prepare_sqlite(self._file, *_STAMP, [_TABLE]) != _STAMP:
                self._file.close()
                raise ReplyCacheError(f"{self.path} holds no replies of this version: name another folder, or --fresh")
            self.tokens: int = self._file.execute("SELECT coalesce(sum(tokens), 0) FROM replies").fetchone()[0]
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    def lookup(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        """The cached reply to a request, or None."""
        key = _key(prompt, llm_string)
        with self._lock:
            try:
                row = self._file.execute("SELECT reply, seconds FROM replies WHERE key = ?", (key,)).fetchone()
            except sqlite3.Error as error:
                raise self._unusable(error) from error
            if row is None:
                self._asked[key] = time.perf_counter()
                return None
        text, seconds = row
        try:
            messages = messages_from_dict(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise self._unusable(error) from error
        return [ChatGeneration(message=message, generation_info={KEPT: seconds}) for message in messages]

    def update(self, prompt: str, llm_string: str, return_val: Sequence[Generation]) -> None:
        """Keep a reply."""
        messages = [generation.message for generation in return_val if isinstance(generation, ChatGeneration)]
        if len(messages) < len(return_val) or not messages:
            return
        text = json.dumps([_plain(message_to_dict(message)) for message in messages], ensure_ascii=False)
        key, now = _key(prompt, llm_string), time.perf_counter()
        tokens = sum(_tokens(message, prompt) for message in messages)
        with self._lock:
            seconds = now - self._asked.pop(key, now)
            try:
                self._file.execute(_KEEP, (key, text, tokens, seconds))
            except sqlite3.Error as error:
                raise self._unusable(error) from error
            self.tokens += tokens

    # Faster than a thread: both take well under a millisecond.
    async def alookup(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        return self.lookup(prompt, llm_string)

    async def aupdate(self, prompt: str, llm_string: str, return_val: Sequence[Generation]) -> None:
        self.update(prompt, llm_string, return_val)

    def clear(self, **kwargs: Any) -> None:
        """Forget all replies."""
        with self._lock:
            self._file.execute("DELETE FROM replies")
            self.tokens = 0

    def _unusable(self, error: Exception) -> ReplyCacheError:
        return ReplyCacheError(f"the model replies in {self.path} cannot be used ({error}): name another folder, or --fresh")


def keep_replies(model: _Model, cache: ReplyCache) -> _Model:
    """Copy a model so that its replies are cached; the copy does not stream, since LangChain caches no streams.

    Raises ModelError if the model is wrapped, such as in fallbacks: figures are about one model.
    """
    given: object = model
    if not isinstance(given, BaseChatModel):
        raise ModelError(f"an evaluation is of one chat model, not of {type(given).__name__}: give the model in it")
    kept = model.model_copy(update={"cache": cache, "disable_streaming": True})
    # The copied description of the model is part of the key and would depend on the model's past.
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
    # The 0 is in the keys of earlier releases.
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
