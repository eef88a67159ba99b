"""The reply cache: model replies on disk by request, so that a run that is resumed pays for none of them twice."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from langchain_core.caches import RETURN_VAL_TYPE, BaseCache
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, message_to_dict, messages_from_dict
from langchain_core.outputs import ChatGeneration, Generation

from langgraph_convcoa.errors import InputError, ModelError
from langgraph_convcoa.evaluation.methods.base import SAMPLE
from langgraph_convcoa.files import open_sqlite, prepare_sqlite, private_file

KEPT = "convcoa_kept"
"""In a generation's info where the reply is a cached one: when it was asked for and when it came, in seconds since 1970."""

_STAMP = (0x434F5251, 1)
_TABLE = "CREATE TABLE replies (key BLOB PRIMARY KEY, reply TEXT, tokens INTEGER, asked REAL, came REAL)"
# Of a request that was made several times at once the first reply stays, which may have been used; all of them were paid for.
_KEEP = "INSERT INTO replies VALUES (?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET tokens = tokens + excluded.tokens"
# What distinguishes replies of the same text: a reply that goes into the next prompt must not change its key.
_PASSING = ("id", "response_metadata", "usage_metadata")
_CHARACTERS_PER_TOKEN = 4
_Model = TypeVar("_Model", bound=BaseChatModel)


class ReplyCacheError(InputError):
    """The replies cannot be read or kept: a run that continued would pay for what it loses."""


class ReplyCache(BaseCache):
    """Replies in an SQLite file, as JSON; a LangChain cache.

    The key is a digest of the messages, the model with its settings (an API key is none of them) and the number of the sample
    (`methods.base.SAMPLE`), so that the file holds no prompt. A reply is on disk before the method that asked for it gets it.
    A call that is under way when its process is killed is made again, even if its reply has just come.
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
                raise ReplyCacheError(
                    f"{self.path} holds no model replies of this version: name another folder with --out, or --fresh"
                )
            self.tokens: int = self._file.execute("SELECT coalesce(sum(tokens), 0) FROM replies").fetchone()[0]
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    @property
    def replies(self) -> int:
        """How many replies there are."""
        with self._lock:
            return int(self._file.execute("SELECT count(*) FROM replies").fetchone()[0])

    def texts(self) -> Iterator[str]:
        """What the model wrote, reply by reply; of one that is a tool call its arguments."""
        with self._lock:
            rows = self._file.execute("SELECT reply FROM replies ORDER BY came").fetchall()
        for (reply,) in rows:
            for message in messages_from_dict(json.loads(reply)):
                calls = message.tool_calls if isinstance(message, AIMessage) else []
                yield message.text or (json.dumps(calls[0]["args"], ensure_ascii=False) if calls else "")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    def lookup(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        """The cached reply to a request, or None."""
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
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
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
                self._file.execute(_KEEP, (key, text, tokens, asked, came))
            except sqlite3.Error as error:
                raise self._unusable(error) from error
            self.tokens += tokens

    # Both take well under a millisecond, less than a thread would.
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
    """A copy of a model whose replies are cached; it does not stream, since LangChain caches no streams.

    Raises:
        ModelError: It is in wrappers such as fallbacks, so that nobody could tell which model a figure is for.
    """
    given: object = model
    if not isinstance(given, BaseChatModel):
        raise ModelError(f"an evaluation is of one chat model, not of {type(given).__name__}: give the model in it")
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
    """The message as JSON data, without what is not JSON: providers put objects of their own into the extra fields."""
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


def _tokens(message: BaseMessage, prompt: str) -> int:
    usage = message.usage_metadata if isinstance(message, AIMessage) else None
    if usage:
        return int(usage["input_tokens"]) + int(usage["output_tokens"])
    return (len(prompt) + len(message.text)) // _CHARACTERS_PER_TOKEN
