"""The page in a browser: a question, its answer and its source, and all that can be done with a conversation."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from langgraph_convcoa.server.guard import Access
from tests.bounds import SECONDS, started, wait_until
from tests.fakes import BACK, VAGUE, asking, corrections, direct, node, plan
from tests.server.page.browser import Script, Watched, watched
from tests.server.served import ANSWER, QUESTION, Served, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

TITLE = "#title"


def ask(page: Page, question: str = QUESTION) -> None:
    page.get_by_label("Question", exact=True).fill(question)
    page.keyboard.press("Enter")


def answered(page: Page, turns: int = 1) -> None:
    page.locator(".turn").nth(turns - 1).locator(".foot-line").wait_for()


@contextmanager
def second_tab(page: Page) -> Iterator[Page]:
    """A second tab on a conversation whose first question the first tab has asked."""
    ask(page)
    answered(page)
    second = page.context.new_page()
    try:
        second.goto(page.url)
        answered(second)
        yield second
    finally:
        second.close()


@contextmanager
def replies(server: Served, *given: str | Exception) -> Iterator[None]:
    """What the model says within a block, in order; the last again and again."""
    script = server.reply if isinstance(server.reply, Script) else Script(server)
    script.left = list(given)
    try:
        yield
    finally:
        script.left = []


def test_an_answer_opens_its_source_with_the_quote_marked(page: Page) -> None:
    ask(page)
    mark = page.get_by_role("button", name="Source 1: hopfield-1982.md").first
    mark.click()
    panel = page.get_by_role("complementary", name="Source [1]")
    assert panel.locator("mark").inner_text() == "John Hopfield described the Hopfield network in 1982."
    assert panel.locator(".found").inner_text().endswith("It stores patterns as minima of an energy function.")
    assert page.locator(".answer").inner_text().replace("\n", "").replace("\u00a0", " ") == ANSWER.replace("[1]", "1")
    page.keyboard.press("Escape")
    assert not panel.is_visible()
    assert mark.evaluate("element => element === document.activeElement")


def test_a_second_tab_shows_the_turns_of_the_first_and_loses_no_question(page: Page, talk: Served) -> None:
    with second_tab(page) as second:
        with talk.held():
            ask(page, "And when was sparsemax introduced?")
            # Followed while it runs.
            second.locator(".turn").nth(1).wait_for()
            second.get_by_role("button", name="Stop").wait_for()
            second.get_by_label("Question", exact=True).fill("Typed meanwhile")
        answered(second, 2)
        answered(page, 2)
        assert second.get_by_label("Question", exact=True).input_value() == "Typed meanwhile"
        assert second.locator(".turn").count() == 2
        assert "was not answered to the end" not in second.locator("body").inner_text()


@pytest.mark.slow
def test_a_newcomer_gets_to_a_source_with_one_command(browser: Browser, tmp_path: Path) -> None:
    environment = {"XDG_DATA_HOME": str(tmp_path), "HOME": str(tmp_path), "CONVCOA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "langgraph_convcoa", "serve", "--docs", "demo", "--port", "0"]
    import os

    with started(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}) as server:
        assert server.stdout is not None
        url = re.findall(r"http://127\.0\.0\.1:\d+", server.stdout.readline())[0]
        with watched(browser, url) as watching:
            page = watching.page
            page.goto(url)
            assert page.locator(".holds").inner_text().startswith("demo: 12 documents")
            assert page.locator(".welcome p").first.inner_text().startswith("Each question is looked up in the documents.")
            page.locator(".suggestion").nth(2).wait_for()
            assert page.locator(".suggestion").count() == 3
            ask(page, "Who introduced the Hopfield network?")
            page.locator("button.mark").first.click()
            quote = page.locator("#panel mark").first
            assert quote.inner_text() == "The Hopfield network was introduced by the physicist John Hopfield."
            assert quote.evaluate("element => element.getBoundingClientRect().top < innerHeight")
            assert page.locator(".foot-line .chain-button").inner_text() == "1 sub-question: answered"
            watching.is_harmless()
            page.screenshot(path=tmp_path / "page.png")
            assert (tmp_path / "page.png").stat().st_size > 20_000


CHAIN = plan(
    node("When was the Hopfield network described?", "1984"),
    node("Who introduced sparsemax?", "Martins and Astudillo"),
    node("Who won the chess match?"),
    optimized="When was it, and who was it?",
)
SETTLED = (
    '{"answers": [{"index": 1, "answer": "1982", "evidence": [1], "status": "supported"}, '
    '{"index": 3, "answer": "", "evidence": [], "status": "none"}], "final_answer": ""}'
)


@pytest.mark.slow
def test_the_chain_says_what_became_of_each_guess(page: Page, talk: Served) -> None:
    with replies(talk, CHAIN, SETTLED), talk.held():
        ask(page, "When was the Hopfield network described, and who introduced sparsemax?")
        page.locator(".status").wait_for()
        talk.let.set()
        answered(page)
    page.locator(".foot-line .chain-button").click()
    steps = page.locator("#panel .step")
    assert steps.count() == 3
    badges = [steps.nth(n).locator(".badge").inner_text() for n in range(3)]
    assert badges[0] == "corrected"
    assert badges[1] in ("kept", "filled", "unsupported")
    assert steps.nth(0).locator("del").inner_text() == "1984"
    assert "1982" in steps.nth(0).locator("ins").inner_text()
    assert re.search(r"score \d\.\d\d", steps.nth(0).inner_text())
    steps.nth(0).locator(".evidence").first.click()
    page.locator("#panel .found").wait_for()
    page.get_by_role("button", name="Back").click()
    assert steps.count() == 3


def test_a_question_back_is_shown_as_one_and_the_next_message_answers_it(page: Page, talk: Served) -> None:
    with replies(talk, asking(), direct(ANSWER)):
        ask(page, VAGUE)
        answered(page)
        assert page.locator(".answer.asked").inner_text() == f"A question back: your next message answers it\n\n{BACK}"
        page.reload()
        answered(page)
        assert page.locator(".answer.asked").count() == 1
        ask(page, "The network.")
        answered(page, 2)
    assert page.locator(".answer.asked").count() == 1


@pytest.mark.slow
def test_a_turn_is_stopped_and_resumed(page: Page, talk: Served) -> None:
    asked = talk.asked
    with talk.held():
        ask(page)
        wait_until(lambda: talk.asked > asked, "the model is asked")
        page.get_by_role("button", name="Stop").click()
        page.get_by_text("The last question was not answered to the end").wait_for()
    page.reload()
    page.get_by_role("button", name="Resume").click()
    answered(page)
    assert page.locator(".turn").count() == 1
    assert "1982" in page.locator(".answer").inner_text()
    assert talk.asked - asked <= 2


@pytest.mark.slow
def test_a_lost_connection_is_taken_up_where_it_was(watching: Watched, talk: Served) -> None:
    page = watching.page
    joined: list[str] = []

    def cut(route: Route) -> None:
        given = {**route.request.headers, "accept-encoding": "identity"}
        with httpx.stream("POST", route.request.url, content=route.request.post_data, headers=given, timeout=SECONDS) as full:
            first = next(full.iter_text())
        route.fulfill(body=first, headers={"content-type": "text/event-stream"})

    page.on(
        "request", lambda request: joined.append(request.headers.get("last-event-id", "")) if "/runs/" in request.url else None
    )
    page.route("**/runs/stream", cut)
    with talk.held():
        ask(page)
        page.get_by_text("The connection is lost; connecting again").wait_for()
        page.wait_for_timeout(100)
    answered(page)
    assert "1982" in page.locator(".answer").inner_text()
    assert page.locator(".notice").count() == 0
    assert joined[0] == ""
    assert joined[1].isdecimal()


@pytest.mark.slow
def test_a_server_that_was_ended_offers_to_resume(watching: Watched, talk: Served) -> None:
    page = watching.page
    page.route("**/runs/*/stream*", lambda route: route.fulfill(status=404, json={"detail": "there is no such run any more"}))
    with talk.held():
        asked = talk.asked
        ask(page)
        wait_until(lambda: talk.asked > asked, "the model is asked")
        thread = page.evaluate("location.hash.slice(3)")
        page.reload()
        page.get_by_text("there is no such run any more").wait_for()
        run = talk.ask("GET", f"/threads/{thread}/runs").json()[0]["run_id"]
        talk.ask("POST", f"/threads/{thread}/runs/{run}/cancel")
    page.reload()
    page.get_by_role("button", name="Resume").click()
    answered(page)


@pytest.mark.slow
def test_a_turn_that_runs_is_joined_after_a_reload(page: Page, talk: Served) -> None:
    with talk.held():
        ask(page)
        page.locator(".thread[aria-current]").wait_for()
        page.wait_for_function("location.hash.length > 3")
        page.get_by_role("button", name="Stop").wait_for()
        page.reload()
        page.get_by_role("button", name="Stop").wait_for()
        assert page.locator(".question").inner_text() == QUESTION
    answered(page)
    assert "1982" in page.locator(".answer").inner_text()


@pytest.mark.slow
def test_renamed_exported_and_deleted(page: Page) -> None:
    ask(page)
    answered(page)
    page.locator("#thread-menu").click()
    page.get_by_role("menuitem", name="Rename").click()
    page.get_by_label("Title").fill("The year <b>1982</b>")
    page.get_by_role("button", name="Rename", exact=True).click()
    page.locator(".thread", has_text="The year <b>1982</b>").wait_for()
    assert page.locator(TITLE).inner_text() == "The year <b>1982</b>"
    for kind, beginning in (("Markdown", "# The year"), ("JSON", "{")):
        page.locator("#thread-menu").click()
        with page.expect_download() as download:
            page.get_by_role("menuitem", name=f"Export as {kind}").click()
        assert Path(download.value.path()).read_text(encoding="utf-8").startswith(beginning)
    page.locator("#thread-menu").click()
    page.get_by_role("menuitem", name="Delete").click()
    page.get_by_role("button", name="Cancel").click()
    assert page.locator(".turn").count() == 1
    page.locator("#thread-menu").click()
    page.get_by_role("menuitem", name="Delete").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.locator(".welcome").wait_for()
    page.locator(".thread", has_text="The year").wait_for(state="detached")


@pytest.mark.slow
def test_a_conversation_deleted_in_another_tab(page: Page, talk: Served) -> None:
    ask(page)
    answered(page)
    thread = page.url.partition("#t=")[2]
    assert talk.ask("DELETE", f"/threads/{thread}").is_success
    ask(page, "And then?")
    page.get_by_text("it was deleted, perhaps in another tab").wait_for()
    assert page.get_by_label("Question", exact=True).input_value() == "And then?"
    assert page.locator(TITLE).inner_text() == "New conversation"


@pytest.mark.slow
def test_an_error_of_the_model_is_said_and_the_turn_can_be_resumed(page: Page, talk: Served) -> None:
    with replies(talk, ConnectionError("the model's <i>address</i> cannot be reached")):
        ask(page)
        page.locator(".notice.error").wait_for()
    page.get_by_role("button", name="Resume").click()
    answered(page)


@pytest.mark.slow
def test_uploads_name_what_was_left_out(page: Page) -> None:
    page.locator("#files").set_input_files(
        [
            {
                "name": "bees.md",
                "mimeType": "text/markdown",
                "buffer": b"# Bees\n\nKarl von Frisch decoded the dance of bees in 1927.",
            },
            {"name": "m10.txt", "mimeType": "text/plain", "buffer": b"Salt is mined near the lake."},
            {"name": "<img src=x onerror=alert(1)>.exe", "mimeType": "", "buffer": b"x"},
            {"name": "broken.pdf", "mimeType": "application/pdf", "buffer": b"%PDF-1.4 nonsense"},
            {"name": "huge.md", "mimeType": "text/markdown", "buffer": b"x" * 1_100_000},
            {"name": "empty.md", "mimeType": "text/markdown", "buffer": b""},
        ]
    )
    page.get_by_text("2 files indexed").wait_for()
    left_out = page.locator(".skipped li")
    names = {left_out.nth(n).locator("bdi").inner_text() for n in range(left_out.count())}
    assert names == {"<img src=x onerror=alert(1)>.exe", "broken.pdf", "huge.md", "empty.md"}
    assert left_out.filter(has_text="huge.md").inner_text().endswith("2 MB; at most 1 MB are taken")
    page.locator(".suggestion", has_text="Bees").wait_for()
    # A file's name is no title to ask about.
    assert page.locator(".suggestion").count() == 1
    page.locator("#show-documents").click()
    page.locator(".document", has_text="Bees").get_by_role("button", name="Remove Bees").click()
    page.locator("dialog").get_by_role("button", name="Remove").click()
    page.locator(".document", has_text="Bees").wait_for(state="detached")
    page.get_by_role("button", name="Delete the collection").click()
    page.locator("dialog").get_by_role("button", name="Delete").click()
    page.get_by_text("is deleted").wait_for()


DROPPED = """([type, name, text]) => {
    const data = new DataTransfer();
    data.items.add(new File([text], name));
    const given = {dataTransfer: data, bubbles: true, cancelable: true};
    document.getElementById('conversation').dispatchEvent(new DragEvent(type, given));
}"""


@pytest.mark.slow
def test_files_are_dropped_on_the_page(page: Page) -> None:
    file = ["ants.md", "# Ants\n\nAnts follow trails of pheromones."]
    page.evaluate(DROPPED, ["dragenter", *file])
    assert page.get_by_text("Drop files to add them to").is_visible()
    page.evaluate(DROPPED, ["drop", *file])
    page.get_by_text("1 file indexed").wait_for()
    assert not page.get_by_text("Drop files to add them to").is_visible()
    page.locator(".suggestion", has_text="Ants").click()
    answered(page)
    # The first collection takes no files: they go to the one that was just made.
    page.locator("#collection").select_option("facts")
    page.evaluate(DROPPED, ["dragenter", *file])
    assert page.locator("#drop").inner_text() == "Drop files to add them to My documents"


@pytest.mark.slow
def test_a_conversation_whose_documents_were_deleted_can_only_be_read(page: Page, talk: Served) -> None:
    collection = talk.ask("POST", "/convcoa/collections", json={"name": "Of another tab"}).json()["id"]
    thread = talk.ask("POST", "/threads", json={"metadata": {"collection": collection}}).json()["thread_id"]
    talk.turn(thread)
    box = page.get_by_label("Question", exact=True)
    page.goto(f"{talk.url}/#t={thread}")
    page.locator(".turn").wait_for()
    assert page.locator("#collection").input_value() == collection
    assert box.is_enabled()
    assert talk.ask("DELETE", f"/convcoa/collections/{collection}").is_success
    page.reload()
    page.get_by_text("The documents of this conversation were deleted").wait_for()
    assert page.locator(".turn").count() == 1
    assert page.locator(".welcome").count() == 0
    assert box.is_disabled()
    page.locator(".card").get_by_role("button", name="New conversation").click()
    page.locator(".welcome").wait_for()
    assert box.is_enabled()


@pytest.mark.slow
def test_a_plan_is_edited_before_it_is_carried_out(browser: Browser, tmp_path: Path) -> None:
    with served(tmp_path, approve=["plan"]) as server, watched(browser, server.url) as watching:
        page = watching.page
        page.goto(server.url)
        with replies(server, plan(node("Who invented bread?")), corrections("1982", final="It was described in 1982 [1].")):
            ask(page)
            page.get_by_text("This turn waits for your approval").wait_for()
            page.get_by_text("Edit", exact=True).click()
            page.get_by_label("Sub-question", exact=True).fill(QUESTION)
            page.get_by_role("button", name="Send edit").click()
            answered(page)
        page.locator(".foot-line .chain-button").click()
        assert page.locator("#panel .step-title").inner_text() == QUESTION
        with replies(server, plan(node("Who invented bread?"))):
            ask(page, "And who rejected it?")
            page.get_by_text("Reject", exact=True).click()
            page.get_by_label("Why (may stay empty)").fill("not <b>that</b>")
            page.get_by_role("button", name="Reject").click()
            answered(page, 2)
        assert "not <b>that</b>" in page.locator(".answer").last.inner_text()
        watching.is_harmless()


@pytest.mark.slow
def test_a_token_is_asked_for(browser: Browser, tmp_path: Path) -> None:
    token = "a-token-of-the-tests-only"
    with served(tmp_path, Access(token=token)) as server, watched(browser, server.url) as watching:
        page = watching.page
        page.goto(server.url)
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_text("That token is not the server's").wait_for()
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        page.locator(".holds").wait_for()
        ask(page)
        answered(page)
        assert page.locator("dialog").count() == 0


def reachable(page: Page, what: str, most: int = 60) -> None:
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate("what => document.activeElement.matches(what)", what):
            return
    raise AssertionError(f"Tab does not reach {what}")


@pytest.mark.slow
def test_the_keyboard_is_enough(page: Page) -> None:
    assert page.evaluate("document.activeElement.id") == "question"
    page.keyboard.type("When was it")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("described?")
    page.keyboard.press("Enter")
    answered(page)
    assert page.locator(".question").inner_text() == "When was it\ndescribed?"
    page.keyboard.press("Shift+Tab")
    page.evaluate("document.activeElement.blur()")
    reachable(page, "button.mark")
    outline: dict[str, Any] = page.evaluate("() => ({...{style: getComputedStyle(document.activeElement).outlineStyle}})")
    assert outline["style"] == "solid"
    page.keyboard.press("Enter")
    page.locator("#panel mark").wait_for()
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.matches('button.mark')")
    reachable(page, ".foot-line .chain-button")
    page.keyboard.press("Enter")
    reachable(page, "#panel .evidence")
    page.keyboard.press("Escape")
    page.evaluate("document.getElementById('thread-menu').focus()")
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.do") == "md"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "thread-menu"
    page.locator("#skip").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "question"


@pytest.mark.slow
def test_nothing_scrolls_sideways_on_a_phone(browser: Browser, talk: Served) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True}
    wide = "() => [document.documentElement, document.getElementById('scroll')].some(e => e.scrollWidth > e.clientWidth)"
    table = "| a very long heading of a column | another one that is as long | a third |\n|---|---|---|\n| 1 | 2 | 3 |"
    with watched(browser, talk.url, **phone) as watching, replies(talk, plan(final=f"{ANSWER}\n\n{table}\n\n`{'x' * 300}`")):
        page = watching.page
        page.goto(talk.url)
        page.locator(".holds").wait_for()
        assert not page.evaluate(wide)
        ask(page, "When was it described, " + "and by whom " * 20 + "w" * 200)
        answered(page)
        assert not page.evaluate(wide)
        page.locator("button.mark").first.tap()
        page.get_by_role("dialog", name="Source [1]").locator("mark").wait_for()
        assert page.locator("#panel").evaluate(
            "e => e.scrollWidth <= e.clientWidth && e.getBoundingClientRect().width === 360"
        )
        assert page.locator("#main").evaluate("e => e.inert")
        page.get_by_role("button", name="Close the panel").tap()
        page.locator(".foot-line .chain-button").tap()
        page.locator("#panel .evidence").first.wait_for()
        assert page.locator("#panel-body").evaluate("e => e.scrollWidth <= e.clientWidth")
        page.keyboard.press("Escape")
        assert not page.get_by_role("button", name="New conversation").is_visible()
        page.get_by_role("button", name="Conversations and documents").tap()
        page.get_by_role("button", name="New conversation").tap()
        page.locator(".welcome").wait_for()
        assert not page.evaluate(wide)
        watching.is_harmless()
