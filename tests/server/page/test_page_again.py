"""What a person does with what was answered: ask it again, edit the question, rate it, find it, and see its source's page."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.bounds import wait_until
from tests.data import pdf_bytes
from tests.fakes import direct
from tests.server.page.browser import watched
from tests.server.page.test_page import answered, ask, replies, second_tab
from tests.server.served import ANSWER, QUESTION, Served
from tests.server.test_forks import EDITED, SPARSEMAX

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


def shown(page: Page) -> list[str]:
    return [one.text_content() or "" for one in page.locator(".question h2").all()]


def edit(page: Page, text: str) -> None:
    page.locator(".turn").last.get_by_role("button", name="Edit the question").click()
    box = page.get_by_label("Edited question")
    assert box.evaluate("element => element === document.activeElement")
    box.fill(text)
    page.keyboard.press("Enter")


@pytest.mark.slow
def test_the_last_answer_is_written_again_and_the_last_question_edited(page: Page, talk: Served) -> None:
    ask(page)
    answered(page)
    ask(page, "When was that?")
    answered(page, 2)
    again: Callable[[], int] = page.get_by_role("button", name="Answer again").count
    assert page.locator(".turn").first.get_by_role("button", name="Answer again").count() == 0
    assert again() == 1
    with replies(talk, direct(SPARSEMAX)):
        page.get_by_role("button", name="Answer again").click()
        page.locator(".answer", has_text="Martins").wait_for()
    answered(page, 2)
    assert shown(page) == [QUESTION, "When was that?"]
    edit(page, EDITED)
    page.locator(".turn").last.locator(".answer", has_text="1982").wait_for()
    answered(page, 2)
    assert shown(page) == [QUESTION, EDITED]
    page.reload()
    answered(page, 2)
    assert shown(page) == [QUESTION, EDITED]
    assert page.locator("#title").inner_text() == QUESTION


@pytest.mark.slow
def test_the_only_question_is_edited_with_the_title(page: Page) -> None:
    ask(page, "When was the notwerk described?")
    answered(page)
    edit(page, QUESTION)
    page.locator(".thread[aria-current]", has_text=QUESTION).wait_for()
    answered(page)
    assert (shown(page), page.locator("#title").inner_text()) == ([QUESTION], QUESTION)
    # Escape takes an edit back.
    page.get_by_role("button", name="Edit the question").click()
    page.keyboard.press("Escape")
    assert shown(page) == [QUESTION]
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Edit the question"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["fails", "is stopped"])
def test_an_edit_that_fails_keeps_the_answer_and_the_typed_text(page: Page, talk: Served, how: str) -> None:
    ask(page)
    answered(page)
    if how == "fails":
        with replies(talk, ConnectionError("no")):
            edit(page, EDITED)
            page.locator(".notice.error").wait_for()
    else:
        with talk.held():
            asked = talk.asked
            edit(page, EDITED)
            wait_until(lambda: talk.asked > asked, "the model is asked")
            assert shown(page) == [EDITED]
            page.get_by_role("button", name="Stop").click()
            page.get_by_label("Edited question").wait_for()
    assert page.get_by_label("Edited question").input_value() == EDITED
    assert page.locator(".answer").inner_text().startswith(ANSWER[:40])
    page.get_by_role("button", name="Ask", exact=True).click()
    page.locator("h2", has_text=EDITED).wait_for()
    answered(page)
    assert shown(page) == [EDITED]


@pytest.mark.slow
def test_an_edit_is_followed_after_a_reload_and_in_another_tab(page: Page, talk: Served) -> None:
    with second_tab(page) as second:
        with talk.held():
            edit(page, EDITED)
            second.locator("h2", has_text=EDITED).wait_for()
            page.reload()
            page.get_by_role("button", name="Stop").wait_for()
            assert shown(page) == [EDITED]
            page.get_by_role("button", name="Stop").click()
            # The answer that was to be replaced.
            answered(page)
            answered(second)
        assert shown(page) == shown(second) == [QUESTION]
        assert EDITED in {tab.get_by_label("Question", exact=True).input_value() for tab in (page, second)}


@pytest.mark.slow
def test_an_answer_is_rated(page: Page) -> None:
    ask(page)
    answered(page)
    good, bad = (page.get_by_role("button", name=name) for name in ("Good answer", "Bad answer"))

    def pressed(*wanted: str) -> None:
        wait_until(lambda: [one.get_attribute("aria-pressed") for one in (good, bad)] == [*wanted], "the rating is shown")

    good.click()
    pressed("true", "false")
    bad.click()
    pressed("false", "true")
    page.reload()
    answered(page)
    pressed("false", "true")
    bad.click()
    pressed("false", "false")
    # A rating does not keep the turn from being asked again.
    page.get_by_role("button", name="Answer again").click()
    page.get_by_role("button", name="Stop").wait_for(state="hidden")
    answered(page)
    assert page.locator(".notice").count() == 0


@pytest.mark.slow
def test_conversations_are_found_by_their_words(page: Page, talk: Served) -> None:
    thread = talk.thread_id()
    talk.turn(thread, "Where is the xylophone?")
    talk.turn(talk.thread_id(), "Where is the violin?")
    box = page.get_by_label("Search questions and answers")
    box.fill("1982 XYLO")
    page.locator(".excerpt", has_text="Where is the xylophone?").wait_for()
    assert page.locator(".thread").count() == 1
    assert page.locator(".excerpt mark").first.inner_text() == "xylo"
    page.locator(".thread").click()
    page.locator("h2", has_text="Where is the xylophone?").wait_for()
    assert page.url.endswith(thread)
    box.fill("nothing like it")
    page.get_by_text("Nothing is found").wait_for()
    box.fill("")
    page.locator(".thread", has_text="violin").wait_for()


@pytest.mark.slow
def test_one_of_several_models_is_chosen(page: Page, talk: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not page.get_by_label("Model").is_visible()
    monkeypatch.setattr(talk.service.settings, "models", ["openai:small", "openai:large"])
    page.reload()
    page.get_by_label("Model").select_option("openai:large")
    with page.expect_request("**/runs/stream") as sent:
        ask(page)
    assert sent.value.post_data_json["context"] == {"model": "openai:large"}
    # It has no key here, which is said.
    page.locator(".notice.error").wait_for()
    page.reload()
    assert page.get_by_label("Model").input_value() == "openai:large"
    page.get_by_label("Model").select_option("openai:small")
    page.get_by_role("button", name="Resume").click()
    answered(page)


@pytest.mark.slow
def test_a_quote_of_a_pdf_opens_its_page(page: Page, browser: Browser, talk: Served) -> None:
    content = pdf_bytes("Ants carry leaves.", "Bees make honey of nectar.")
    page.locator("#files").set_input_files([{"name": "a&b #1.pdf", "mimeType": "application/pdf", "buffer": content}])
    page.get_by_text("1 file indexed").wait_for()
    with replies(talk, direct("Bees make honey of nectar [1].")):
        ask(page, "What do bees make of nectar?")
        answered(page)
    page.locator("button.mark").click()
    link = page.get_by_role("link", name="Page 2 of the PDF")
    address = link.get_attribute("href")
    assert address is not None
    assert re.fullmatch(r"/convcoa/collections/\w+/files\?source=a%26b\+%231\.pdf#page=2", address)
    # In a page of its own, since the browser's viewer loads much.
    with watched(browser, talk.url) as viewer:
        viewer.page.goto(f"{talk.url}{address}")
        assert viewer.page.evaluate("document.contentType") == "application/pdf"
        wait_until(lambda: len(viewer.page.frames) > 1, "the browser's viewer shows it")
        assert viewer.errors == viewer.refused == []
