"""Who cannot see, or not well, can use the page: names, roles, order and contrast of all that it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fakes import node, plan
from tests.server.page.browser import script, watched
from tests.server.page.test_page import SETTLED, answered, ask, replies
from tests.server.served import Served

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FAULTS = script("faults")
CONTRAST = script("contrast")


@pytest.mark.slow
def test_everything_has_a_name_and_can_be_read(browser: Browser, talk: Served) -> None:
    chain = plan(node("When was the Hopfield network described?", "1984"), node("Who won?"), node("Who introduced sparsemax?"))
    with watched(browser, talk.url) as watching:
        page = watching.page

        def is_fine() -> None:
            assert page.evaluate(FAULTS) == []
            grounds = set()
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                checked, faint = page.evaluate(CONTRAST)
                assert checked > 10
                assert faint == {}, scheme
                grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            assert len(grounds) == 2

        titled = [{"source": "ants.md", "title": "The trails of ants", "passages": 1, "kind": "md"}]
        page.route("**/documents?**", lambda route: route.fulfill(json=titled), times=1)
        page.goto(talk.url)
        page.locator(".suggestion").first.wait_for()
        is_fine()
        with replies(talk, chain, SETTLED):
            ask(page, "When was the Hopfield network described, and who won?")
            answered(page)
        page.get_by_role("button", name="Good answer").click()
        page.locator("[aria-pressed=true]").wait_for()
        page.get_by_role("button", name="Edit the question").click()
        page.get_by_label("Search questions and answers").fill("Hopfield")
        page.locator(".excerpt mark").first.wait_for()
        is_fine()
        page.get_by_role("button", name="Cancel").click()
        page.locator(".foot-line .chain-button").click()
        page.locator(".legend summary").click()
        is_fine()
        page.locator("#panel .evidence").first.click()
        page.locator("#panel .found").wait_for()
        is_fine()
        page.locator("#show-documents").click()
        page.locator(".document").first.wait_for()
        page.locator("#files").set_input_files([{"name": "a.exe", "mimeType": "", "buffer": b"x"}])
        page.locator(".skipped li").wait_for()
        page.locator("#thread-menu").click()
        is_fine()
        page.get_by_role("menuitem", name="Delete").click()
        is_fine()


@pytest.mark.slow
def test_a_screen_reader_hears_each_sentence_once(browser: Browser, talk: Served) -> None:
    answer = (
        "John Hopfield described the Hopfield network in 1982 [1]. It stores patterns as minima of an energy function [1]."
    )
    with watched(browser, talk.url) as watching, replies(talk, plan(final=answer)):
        page = watching.page
        page.goto(talk.url)
        page.locator(".holds").wait_for()
        ask(page)
        answered(page)
        page.get_by_text("Answered, 1 source").wait_for(state="attached")
        live = page.locator("#live")
        assert live.get_attribute("aria-live") == "polite"
        said = live.inner_text()
        for sentence in ("described the Hopfield network in 1982", "It stores patterns as minima"):
            assert said.count(sentence) == 1
        assert "[1]" not in said


@pytest.mark.slow
def test_faults_are_found(browser: Browser) -> None:
    with watched(browser, "about:blank") as watching:
        watching.page.set_content("<button style='width:9px'></button><p style='color:#999'>faint</p><ul><p>b</p></ul><img>")
        assert len(watching.page.evaluate(FAULTS)) >= 6
        assert list(watching.page.evaluate(CONTRAST)[1]) == ["p."]
