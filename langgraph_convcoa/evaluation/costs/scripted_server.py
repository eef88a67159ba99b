"""Server on this machine for the model of a script, in the OpenAI wire format."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from langgraph_convcoa.evaluation.costs.scripted import Script
from langgraph_convcoa.evaluation.costs.scripted_replies import ScriptedReplies, count_tokens

_PIECE = 16
_TOKENS_PER_MESSAGE = 4
"""Of the marks around a message in a chat format."""


class ScriptedServer:
    """Serves chat completions from a script; a context manager, which starts and stops it.

    It knows JSON schemas (whose text counts as input), stop sequences and streams. Tokens are counted by `count_tokens`.

    Example:
        >>> from langgraph_convcoa.evaluation.costs.scripted import make_script
        >>> with ScriptedServer(make_script(2, 1.0)) as server:
        ...     server.base_url.startswith("http://127.0.0.1:")
        True
    """

    def __init__(self, script: Script) -> None:
        self._replies = ScriptedReplies(script)
        self._lock = threading.Lock()
        self.requests = 0
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

    def reply(self, messages: Sequence[tuple[str, str]]) -> str:
        """The model's reply to pairs of role and text."""
        return self._replies.reply(messages)

    def _answer(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        messages = [(str(message["role"]), _text(message["content"])) for message in body["messages"]]
        schema = json.dumps(body["response_format"]) if "response_format" in body else ""
        with self._lock:
            self.requests += 1
        text = self.reply(messages)
        stop = body.get("stop") or []
        for end in [stop] if isinstance(stop, str) else stop:
            text = text.split(end, 1)[0]
        asked = sum(count_tokens(content) + _TOKENS_PER_MESSAGE for _, content in messages) + count_tokens(schema)
        told = count_tokens(text)
        usage = {"prompt_tokens": asked, "completion_tokens": told, "total_tokens": asked + told}
        head = {"id": "chatcmpl-script", "created": 1, "model": body.get("model", "script")}
        if body.get("stream"):
            wanted = (body.get("stream_options") or {}).get("include_usage")
            _send(handler, "text/event-stream", _events(head, text, usage if wanted else None))
            return
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        _send(
            handler, "application/json", json.dumps({**head, "object": "chat.completion", "choices": [choice], "usage": usage})
        )


def _text(content: Any) -> str:
    """A message's text, which clients may send in parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def _send(handler: BaseHTTPRequestHandler, kind: str, text: str) -> None:
    data = text.encode()
    handler.send_response(200)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


def _events(head: dict[str, Any], text: str, usage: dict[str, int] | None) -> str:
    """The stream of a reply."""
    head = {**head, "object": "chat.completion.chunk"}
    deltas = [{"role": "assistant", "content": text[n : n + _PIECE]} for n in range(0, len(text), _PIECE)]
    events: list[dict[str, Any]] = [{**head, "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    events.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    if usage is not None:
        events.append({**head, "choices": [], "usage": usage})
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
