"""Which results and passages are chosen; and the settings of the action."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from langgraph_convcoa.actions.web.action import WebQuerying, WebRanker
from langgraph_convcoa.actions.web.pages import Page
from langgraph_convcoa.actions.web.search import SearchResult
from langgraph_convcoa.errors import InputError
from tests.fake_encoder import WordEncoder


def results(*texts: str) -> list[SearchResult]:
    return [SearchResult(f"Title {n}", f"https://example.org/{n}", text) for n, text in enumerate(texts)]


def test_results_are_chosen_by_what_they_say_and_not_by_their_rank() -> None:
    given = results("How to make tea", "A recipe for soup", "Hopfield described the network in 1982", "The Hopfield network")
    chosen = WebRanker(WordEncoder()).choose(given, "When was the Hopfield network described?", 2)
    assert {result.url[-1] for result in chosen} == {"2", "3"}


def test_results_without_a_choice_are_left_as_they_are_and_load_no_encoder() -> None:
    given = results("b", "a")
    assert WebRanker("no-such-model").choose(given, "a", 2) == given


def test_results_of_the_same_text_and_long_ones_are_no_difficulty() -> None:
    given = results("same words", "same words", "long words " * 400, "")
    chosen = WebRanker(WordEncoder()).choose(given, "long words", 3)
    assert len({result.url for result in chosen}) == 3
    assert given[2] in chosen


def test_the_passage_of_a_long_page_is_found_and_few_are_encoded() -> None:
    filler = "\n\n".join("This paragraph tells of rivers and of hills. " * 20 for _ in range(300))
    page = Page(
        "https://example.org/long", "Long", f"{filler}\n\nThe Halvorsen Bridge opened in 1931.\n\n{filler}", "2021-05-12"
    )
    other = Page("https://example.org/other", "Other", "Soup is made of water.")
    encoder = WordEncoder()
    found = WebRanker(encoder).passages([other, page], "When did the Halvorsen Bridge open?", 3)
    assert "Halvorsen Bridge opened in 1931" in found[0].page_content
    assert found[0].metadata["source"] == page.url
    assert found[0].metadata["date"] == "2021-05-12"
    assert "1931" in found[0].metadata["quote"]
    # Sixty passages of about a dozen windows each, of six hundred.
    assert len(encoder.encoded) < 60 * 25


def test_pages_without_text_give_nothing() -> None:
    assert WebRanker(WordEncoder()).passages([Page("https://example.org/", "T", "  ")], "q", 3) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"results": 0}, "results must be"), ({"pages": 101}, "pages must be"), ({"cache_seconds": -1}, "cache_seconds"),
        ({"allow_private": ["http://x"]}, "allow_private"), ({"search": "bing"}, "there is no search"),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_used_is_told(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message) as caught:
        WebQuerying(**{"search": lambda query: [], **settings})
    assert "\n" not in str(caught.value)


def test_one_private_host_may_be_given_as_a_text() -> None:
    assert WebQuerying(lambda query: [], allow_private="wiki.intern")
