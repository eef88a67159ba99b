"""Nothing that documents, models, file names or errors say runs in the page, or makes it ask another server."""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

import langgraph_convcoa
from langgraph_convcoa.server.guard import PAGE_POLICY
from tests.bounds import wait_until
from tests.server.page.browser import Watched, watched
from tests.server.page.hostile import CASES, HUGE

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Route

ORIGIN = "http://127.0.0.1:8999"
STATIC = Path(langgraph_convcoa.__file__).parent / "server" / "static"
TIME = "2026-01-01T00:00:00+00:00"
CLICK_ALL = "selector => { for (const element of document.querySelectorAll(selector)) element.click(); }"


def citation(text: str) -> dict[str, Any]:
    return {"id": text, "source": text, "quote": text}


def step(text: str, status: str) -> dict[str, Any]:
    return {
        "action": text, "sub_question": text, "guess_answer": text, "action_input": f"SELECT {text}", "answer": text,
        "status": status, "score": 0.5, "reason": text, "evidence": [text], "paths": {text: [text, text]},
    }  # fmt: skip


def round_of(texts: Sequence[str]) -> dict[str, Any]:
    joined = "\n".join(texts)
    cited = [citation(text) for text in texts]
    cited += [{**citation(text), "id": "data", "quote": f"SELECT {text} gives {text}"} for text in texts]
    marks = " ".join(f"{text} [{n}]" for n, text in enumerate([*texts, *texts], 1))
    rows = "\n".join(f"| {text} | 1 |" for text in texts)
    items = "\n".join(f"- {text}\n  > {text}" for text in texts)
    return {
        "question": joined, "optimized_question": f"{joined}?",
        "answer": f"{joined}\n\n{marks}\n\n| {texts[0]} | a |\n|---|---|\n{rows}\n\n{items}\n\n```\n{joined}\n```",
        "citations": cited, "chain": [step(text, status) for text in texts for status in ("corrected", text)],
        "evidence": [citation(text) for text in texts],
        "usage": {"llm_calls": joined, "input_tokens": 1, "output_tokens": 1, "seconds": joined}, "time": joined,
    }  # fmt: skip


CHUNKS = [CASES[start : start + 11] for start in range(0, len(CASES), 11)]
REQUESTS = [
    {
        "name": texts[0],
        "description": texts[-1],
        "args": {"chain": [step(text, "") for text in texts], **{t: t for t in texts}},
    }
    for texts in CHUNKS
]
EVENTS: list[tuple[str, Any]] = [
    ("metadata", {"run_id": "run"}),
    ("custom", {"type": "plan", "optimized_question": CASES[0], "sub_questions": CASES}),
    *(("custom", {"type": "sub_question", "index": n, **step(text, "kept")}) for n, text in enumerate(CASES)),
    ("custom", {"type": "answer", "unsupported": CASES}),
    *(("messages", [{"type": "AIMessageChunk", "content": f"{text}\n\n"}, {}]) for text in CASES),
    ("error", {"error": CASES[0], "message": CASES[1]}),
]


class HostileServer:
    """Answers every request of the page with the cases, in every text that an answer has."""

    def __init__(self) -> None:
        self.skipped = [{"name": text, "reason": text} for text in CASES]

    def __call__(self, route: Route) -> None:
        url = urlsplit(route.request.url)
        if f"{url.scheme}://{url.netloc}" != ORIGIN:
            route.abort()
            return
        if url.path == "/" or url.path.startswith("/static/"):
            file = STATIC / (url.path.removeprefix("/static/") if url.path != "/" else "index.html")
            kind = mimetypes.guess_type(file.name)[0] or ""
            route.fulfill(body=file.read_bytes(), headers={"content-type": kind, "content-security-policy": PAGE_POLICY})
            return
        if url.path.endswith("/runs/stream"):
            text = "".join(f"id: {n}\nevent: {e}\ndata: {json.dumps(d)}\n\n" for n, (e, d) in enumerate(EVENTS, 1))
            route.fulfill(body=text, headers={"content-type": "text/event-stream"})
            return
        status, answer = self.answer(url.path, {name: values[0] for name, values in parse_qs(url.query).items()})
        route.fulfill(status=status, body=json.dumps(answer), headers={"content-type": "application/json"})

    def answer(self, path: str, query: dict[str, str]) -> tuple[int, Any]:
        if path == "/convcoa/info":
            actions = [{"name": text, "description": text} for text in CASES[:30]]
            return 200, {"models": CASES[:2], "actions": actions, "upload": {"max_mb": 1, "extensions": [".md", *CASES[:3]]}}
        if path == "/convcoa/collections":
            return 200, [
                {"id": text, "name": text, "documents": 1, "passages": 1, "status": text, "message": text} for text in CASES
            ]
        if path.endswith("/documents"):
            return 200, [{"source": f"file {text}", "title": text, "passages": 1, "kind": text} for text in CASES]
        if path.endswith("/files"):
            return 202, {"job": "job"}
        if path.startswith("/convcoa/jobs/"):
            return 200, {"status": "done", "done": 1, "total": 1, "skipped": self.skipped, "message": CASES[2]}
        if path == "/convcoa/passages":
            texts = next((texts for texts in CHUNKS if query["id"] in texts), CASES)
            if query["id"] == texts[-1]:
                return 500, {"detail": texts[-1]}
            about = {"title": texts[0], "source": texts[0], "page": texts[0], "pdf": True}
            text = "\n".join(texts)
            return 200, {"id": texts[0], **about, "text": text, "before": text, "after": text, "spans": [[0, 9], [12, 40]]}
        if path in ("/threads/search", "/convcoa/threads"):
            about = {"created_at": TIME, "updated_at": TIME, "status": "idle"}
            threads = [{"thread_id": text, **about, "metadata": {"title": text}, "excerpt": text} for text in CASES]
            return 200, threads if path == "/threads/search" else {"threads": threads, "complete": False}
        if path == "/threads":
            return 200, {"thread_id": "failed", "metadata": {}}
        name = path.rsplit("/", 1)[-1]
        thread = {
            "thread_id": name, "title": CASES[0], "collection": CASES[0], "run_id": None, "unfinished": "", "waiting": None,
        }  # fmt: skip
        rounds = [round_of(texts) for texts in ([[text] for text in HUGE] if name == "huge" else CHUNKS)]
        if name == "waits":
            return 200, {**thread, "rounds": [], "unfinished": CASES[0], "waiting": {"action_requests": REQUESTS}}
        if name == "failed":
            return 200, {**thread, "rounds": [], "unfinished": CASES[4]}
        return (200, {**thread, "rounds": rounds}) if name in ("rounds", "huge") else (404, {"detail": CASES[5]})


def every_turn(watching: Watched) -> None:
    """All rounds of a conversation: the chain of each, a source, and one that the server fails to give."""
    page = watching.page
    page.goto(f"{ORIGIN}/#t=rounds")
    page.locator(".turn").nth(len(CHUNKS) - 1).wait_for(state="attached")
    page.evaluate(CLICK_ALL, ".turn .chain-button")
    for turn in page.locator(".turn").all():
        turn.locator("button.mark").first.dispatch_event("click")
        page.locator("#panel .source .passage").wait_for()
    page.locator(".turn").first.locator(".chip").nth(len(CHUNKS[0]) - 1).dispatch_event("click")
    page.locator("#panel .source .notice").wait_for()


@pytest.mark.slow
def test_hostile_texts_are_texts(browser: Browser) -> None:
    assert len(CASES) >= 200
    with watched(browser, ORIGIN) as watching:
        page = watching.page
        page.route("**/*", HostileServer())
        page.goto(ORIGIN)
        page.locator(".thread").nth(len(CASES) - 1).wait_for()
        page.locator("#show-documents").click()
        page.locator(".document").nth(len(CASES) - 1).wait_for()
        page.evaluate(CLICK_ALL, ".suggestion")
        page.locator(".notice.error").wait_for()
        watching.is_harmless()
        page.get_by_label("Search questions and answers").fill("<img src=x> .* [a (b")
        page.get_by_text("Older conversations were not searched").wait_for()
        watching.is_harmless()
        every_turn(watching)
        watching.is_harmless()
        page.goto(f"{ORIGIN}/#t=waits")
        page.locator(".request").nth(len(CHUNKS) - 1).wait_for()
        page.evaluate(CLICK_ALL, ".request input[value=edit]")
        watching.is_harmless()
        page.evaluate(CLICK_ALL, ".request input[value=reject]")
        names = [text.replace("/", "_").replace("\x00", "")[:80] for text in CASES if "\ud83d" not in text]
        page.locator("#files").set_input_files([{"name": name, "mimeType": "", "buffer": b"x"} for name in names])
        page.locator(".skipped li").nth(150).wait_for()
        page.locator("#thread-menu").click()
        page.locator("[data-do=rename]").click()
        page.locator("dialog input").wait_for()
        watching.is_harmless()


@pytest.mark.slow
def test_the_cases_do_harm_where_markup_is_believed(browser: Browser) -> None:
    with watched(browser, ORIGIN) as watching:
        page = watching.page
        page.route(
            "**/*",
            lambda route: (
                route.fulfill(body="<div id=here></div>", content_type="text/html")
                if route.request.url == f"{ORIGIN}/"
                else route.abort()
            ),
        )
        page.goto(f"{ORIGIN}/")
        # But for those that would send the page away, which leaves nothing to look at.
        believed = [text for text in CASES if "refresh" not in text and "<base" not in text]
        page.evaluate("texts => { for (const text of texts) here.insertAdjacentHTML('beforeend', text + '\\n'); }", believed)
        wait_until(
            lambda: page.wait_for_timeout(20) or len(watching.dialogs) > 5 < len(watching.elsewhere), "scripts that run"
        )


@pytest.mark.slow
def test_huge_texts_are_shown(browser: Browser) -> None:
    with watched(browser, ORIGIN) as watching:
        page = watching.page
        page.route("**/*", HostileServer())
        page.goto(f"{ORIGIN}/#t=huge")
        page.locator(".turn").nth(len(HUGE) - 1).wait_for(state="attached")
        page.locator(".turn .chain-button").last.click()
        page.locator("#panel .evidence").first.click()
        page.locator("#panel .source .passage").wait_for()
        watching.is_harmless()


def test_there_are_enough_cases() -> None:
    assert len(set(CASES)) == len(CASES) >= 200
