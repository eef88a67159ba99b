"""One browser and one server for the tests of a module: while playwright lives, no other test can run an event loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is in the extra `dev`")
pytest.importorskip("starlette")

from tests.server.page.browser import Script, Watched, chromium, watched
from tests.server.served import Served, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def talk(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server over a few facts, on loopback; not started where there is no browser."""
    with served(tmp_path_factory.mktemp("page")) as found:
        Script(found)
        yield found


@pytest.fixture
def watching(browser: Browser, talk: Served) -> Iterator[Watched]:
    """The page, opened, of a person who was never there; at the end nothing has failed in it."""
    with watched(browser, talk.url) as found:
        found.page.goto(talk.url)
        found.page.locator(".holds").wait_for()
        yield found
        found.is_harmless()


@pytest.fixture
def page(watching: Watched) -> Page:
    return watching.page
