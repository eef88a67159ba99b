"""A chat-completions server on loopback in the OpenAI wire format. It answers from a script and keeps the requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from langchain_openai import ChatOpenAI

from tests.bounds import SECONDS
from tests.loopback import Loopback


@dataclass
class Reply:
    """One reply: a text, or a failure if `status` is not 200."""

    text: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    finish_reason: str = "stop"
    usage: tuple[int, int] | None = (100, 20)
    drop: bool = False
    """Close the connection without an answer."""


Script = Callable[[dict[str, Any]], "Reply | str"]


class OpenAIServer(Loopback):
    """Serves `script(request body) -> Reply`. At the end of its `with` block it stops, and drops delayed replies."""

    # Each event of a stream holds `piece` characters; a client takes a millisecond to read an event.

    def __init__(self, script: Script | list[Reply | str], piece: int = 3) -> None:
        super().__init__()
        self.base_url += "/v1"
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self._piece = piece
        self._closing = threading.Event()
        if isinstance(script, list):
            queue = list(script)
            self._script: Script = lambda body: queue.pop(0)
        else:
            self._script = script

    def model(self, name: str = "a", **settings: Any) -> ChatOpenAI:
        """A client of this server."""
        return chat_model(self.base_url, name, **settings)

    def __exit__(self, *error: object) -> None:
        self._closing.set()
        super().__exit__(*error)

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self._lock:
            self.requests.append(body)
            self.keys.append(handler.headers.get("Authorization", ""))
            reply = self._script(body)
        if isinstance(reply, str):
            reply = Reply(reply)
        if not self._closing.wait(reply.delay):
            self._send(handler, body, reply)

    def _send(self, handler: BaseHTTPRequestHandler, body: dict[str, Any], reply: Reply) -> None:
        if reply.drop:
            handler.connection.close()
            return
        if reply.status != 200:
            payload = {"error": {"message": reply.text or f"failure {reply.status}", "type": "error", "code": None}}
            self._json(handler, reply.status, payload, reply.headers)
            return
        head = {"id": "chatcmpl-1", "created": 1, "model": body["model"]}
        usage = None
        if reply.usage:
            prompt, output = reply.usage
            usage = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
        if not body.get("stream"):
            choice = {
                "index": 0,
                "message": {"role": "assistant", "content": reply.text},
                "finish_reason": reply.finish_reason,
            }
            self._json(handler, 200, {**head, "object": "chat.completion", "choices": [choice], "usage": usage}, reply.headers)
            return
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.end_headers()
        head["object"] = "chat.completion.chunk"
        pieces = [reply.text[i : i + self._piece] for i in range(0, len(reply.text), self._piece)]
        for number, piece in enumerate(pieces):
            # Send the role once: openai's client would join repeated values.
            delta = {"content": piece} if number else {"role": "assistant", "content": piece}
            self._event(handler, {**head, "choices": [{"index": 0, "delta": delta}]})
        self._event(handler, {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reply.finish_reason}]})
        if usage and (body.get("stream_options") or {}).get("include_usage"):
            self._event(handler, {**head, "choices": [], "usage": usage})
        handler.wfile.write(b"data: [DONE]\n\n")

    @staticmethod
    def _event(handler: BaseHTTPRequestHandler, payload: dict[str, Any]) -> None:
        handler.wfile.write(f"data: {json.dumps(payload)}\n\n".encode())
        handler.wfile.flush()

    @staticmethod
    def _json(handler: BaseHTTPRequestHandler, status: int, payload: dict[str, Any], headers: dict[str, str]) -> None:
        data = json.dumps(payload).encode()
        handler.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)


def chat_model(base_url: str, name: str = "a", **settings: Any) -> ChatOpenAI:
    """A client of a server; it does not retry."""
    return ChatOpenAI(model=name, base_url=base_url, **{"api_key": "x", "max_retries": 0, "timeout": SECONDS, **settings})


def prompt_of(body: dict[str, Any]) -> str:
    """The text of a request's messages."""
    return "\n".join(str(message["content"]) for message in body["messages"])


def kind_of(body: dict[str, Any]) -> str:
    """The library's prompt in a request: `plan` (over evidence), `plan_initial` or `plan_normal` (the papers' first or later
    plan), `correct`, `confirm` or `repair`.
    """
    text = prompt_of(body)
    if "could not be read as JSON" in text:
        return "repair"
    if "Answer a question from evidence that was looked up for its sub-questions" in text:
        return "correct"
    if "Check sentences of an answer against the evidence" in text:
        return "confirm"
    if "Answer the last question from the retrieved passages" in text:
        return "plan"
    return "plan_normal" if "Continue a conversation" in text else "plan_initial"
