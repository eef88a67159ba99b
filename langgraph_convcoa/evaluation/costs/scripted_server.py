"""The model of a script behind a server on this machine that speaks the OpenAI wire format."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.costs.scripted import Script
from langgraph_convcoa.evaluation.costs.scripted_replies import ScriptedReplies, count_tokens

MALFORMED = "Hm. That is a matter on which much could be said"
"""A reply in nobody's form."""
_PIECE = 16
_TOKENS_PER_MESSAGE = 4
"""What chat formats put around a message."""


class ScriptedServer:
    """Serves chat completions from a script; a context manager, which starts and stops it.

    It knows JSON schemas (whose text counts as input), stop sequences and streams. Tokens are counted by `count_tokens`.

    Args:
        script: The questions and what is believed of them.
        malformed: Share of replies in no known form, drawn by the request's text.
        failing: Share of requests that fail with status 500, drawn in the same way; the same request may succeed later.
        seed: Of both draws.

    Raises:
        InputError: A share is not from 0 to 1.

    Example:
        >>> from langgraph_convcoa.evaluation.costs.scripted import make_script
        >>> with ScriptedServer(make_script(2, 1.0)) as server:
        ...     server.base_url.startswith("http://127.0.0.1:")
        True
    """

    def __init__(self, script: Script, *, malformed: float = 0.0, failing: float = 0.0, seed: int = 0) -> None:
        if not (0 <= malformed <= 1 and 0 <= failing <= 1):
            raise InputError("the shares of malformed replies and of failing requests are from 0 to 1")
        self._replies = ScriptedReplies(script)
        self._malformed, self._failing, self._seed = malformed, failing, seed
        self._lock = threading.Lock()
        self._asked: Counter[str] = Counter()
        self.requests = 0
        self.failed = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    outer._answer(self, body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def base_url(self) -> str:
        """What a client is given as the API's address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        messages = [(str(message["role"]), _text(message["content"])) for message in body["messages"]]
        schema = json.dumps(body["response_format"]) if "response_format" in body else ""
        key = json.dumps(messages)
        with self._lock:
            self.requests += 1
            self._asked[key] += 1
            fails = self._drawn(f"fail {self._asked[key]} {key}") < self._failing
            self.failed += fails
        if fails:
            _send(handler, 500, {"error": {"message": "scripted failure", "type": "server_error", "code": None}})
            return
        text = MALFORMED if self._drawn(f"malformed {key}") < self._malformed else self._replies.reply(messages)
        for end in _stops(body):
            text = text.split(end, 1)[0]
        asked = sum(count_tokens(content) + _TOKENS_PER_MESSAGE for _, content in messages) + count_tokens(schema)
        told = count_tokens(text)
        usage = {"prompt_tokens": asked, "completion_tokens": told, "total_tokens": asked + told}
        head = {"id": "chatcmpl-script", "created": 1, "model": body.get("model", "script")}
        if body.get("stream"):
            wanted = (body.get("stream_options") or {}).get("include_usage")
            _stream(handler, head, text, usage if wanted else None)
            return
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        _send(handler, 200, {**head, "object": "chat.completion", "choices": [choice], "usage": usage})

    def _drawn(self, text: str) -> float:
        """A number in [0, 1), the same for the same text."""
        digest = hashlib.sha256(f"{self._seed} {text}".encode()).digest()
        return int.from_bytes(digest[:6], "big") / 2**48


def _text(content: Any) -> str:
    """A message's text, which clients may send in parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def _stops(body: dict[str, Any]) -> list[str]:
    stop = body.get("stop") or []
    return [stop] if isinstance(stop, str) else list(stop)


def _send(handler: BaseHTTPRequestHandler, status: int, payload: dict[str, Any]) -> None:
    data = json.dumps(payload).encode()
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


def _stream(handler: BaseHTTPRequestHandler, head: dict[str, Any], text: str, usage: dict[str, int] | None) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.end_headers()
    head = {**head, "object": "chat.completion.chunk"}
    deltas = [{"role": "assistant", "content": text[n : n + _PIECE]} for n in range(0, len(text), _PIECE)]
    events: list[dict[str, Any]] = [{**head, "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    events.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    if usage is not None:
        events.append({**head, "choices": [], "usage": usage})
    for event in events:
        handler.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
    handler.wfile.write(b"data: [DONE]\n\n")
