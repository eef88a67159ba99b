"""Debian's Chromium for the tests of the page: found, started, and what happens in it recorded."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.bounds import SECONDS
from tests.fakes import direct
from tests.server.served import ANSWER, Served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page

MILLISECONDS = 120_000
"""The longest wait for something on the page; on a busy machine a step takes a hundredth."""


def script(name: str) -> str:
    """A function for a page, kept beside this file."""
    return Path(__file__).with_name(f"{name}.js").read_text(encoding="utf-8")


FOREIGN = script("foreign")
"""Lists elements and attributes that the page itself never makes."""


def executable() -> str | None:
    """The system's Chromium; none is downloaded."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser for a block; the test is skipped where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is in the extra `dev`")
    path = executable()
    if path is None:
        pytest.skip("there is no Chromium on this machine: apt install chromium")
    with playwright.sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Script:
    """What the model of a server says: what is left of a script, its last part again and again, or else the usual answer."""

    def __init__(self, server: Served) -> None:
        self.server = server
        self.left: list[Any] = []
        server.reply = self

    def __call__(self, prompt: str) -> Any:
        self.server.asked += 1
        assert self.server.let.wait(SECONDS)
        if not self.left:
            return direct(ANSWER)
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]


class Watched:
    """A page and all that it did: dialogs, requests, refusals of the policy, errors."""

    def __init__(self, context: BrowserContext, origin: str) -> None:
        self.origin = origin
        self.dialogs: list[str] = []
        self.elsewhere: list[str] = []
        self.refused: list[str] = []
        self.errors: list[str] = []
        self.page: Page = context.new_page()
        self.page.set_default_timeout(MILLISECONDS)
        self.page.on("dialog", self._dialog)
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        context.on("request", lambda request: self._request(request.url))

    def _dialog(self, dialog: Dialog) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def _console(self, message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text:
            self.refused.append(message.text)

    def _request(self, url: str) -> None:
        if not url.startswith((f"{self.origin}/", f"blob:{self.origin}/")):
            self.elsewhere.append(url)

    def is_harmless(self) -> None:
        """Nothing ran, nothing was refused since nothing was tried, nothing left the origin, and the page is its own."""
        did = [self.page.evaluate("window.ran || 0"), self.dialogs, self.elsewhere, self.refused, self.errors]
        did.append(self.page.evaluate(FOREIGN))
        assert did == [0, [], [], [], [], []], did
        assert self.page.url.startswith(f"{self.origin}/")
        assert len(self.page.context.pages) == 1


@contextmanager
def watched(browser: Browser, origin: str, **options: Any) -> Iterator[Watched]:
    """A fresh page, as of a person who was never there."""
    context = browser.new_context(**({"viewport": {"width": 1280, "height": 800}} | options))
    try:
        yield Watched(context, origin)
    finally:
        context.close()
