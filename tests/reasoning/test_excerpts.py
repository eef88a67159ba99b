from __future__ import annotations

from langchain_core.documents import Document

from langgraph_convcoa.reasoning.excerpts import excerpts

BEFORE = "The mayor spoke of the bridge at length. The bridge was praised by the bishop. "
FOUND = "It opened in 1894. Two people paid the toll that day."
AFTER = " The bridge was later painted green. Nobody liked the bridge in green."


def test_what_was_found_comes_before_what_stands_beside_it() -> None:
    text = BEFORE + FOUND + AFTER
    part = [len(BEFORE), len(BEFORE) + len(FOUND)]
    (shown,) = excerpts([Document(text, metadata={"part": part})], ["What of the bridge?"], words=11)
    assert shown.text == f"… {FOUND} …"
    (wider,) = excerpts([Document(text, metadata={"part": part})], ["What of the bridge?"], words=18)
    assert FOUND in wider.text
    assert len(wider.text) > len(shown.text)
    (plain,) = excerpts([Document(text)], ["What of the bridge?"], words=11)
    assert "1894" not in plain.text


def test_what_stands_beside_takes_only_what_the_found_parts_leave_over() -> None:
    long = " ".join(f"Sentence {n} of the long one." for n in range(10))
    short = Document(BEFORE + FOUND + AFTER, metadata={"part": [len(BEFORE), len(BEFORE) + len(FOUND)]})
    shown = excerpts([Document(long), short], ["What of the bridge?"], words=36)
    assert shown[0].text == long
    assert FOUND in shown[1].text
    assert len(shown[1].text.split()) <= 72 - len(long.split()) + 3
    alone = excerpts([short], ["What of the bridge?"], words=72)
    assert alone[0].text == short.page_content


def test_a_part_that_is_no_place_in_the_text_is_passed_over() -> None:
    for part in (None, "ab", [1], ["a", 2], [5, 900], [True, False]):
        (shown,) = excerpts([Document(BEFORE + FOUND, metadata={"part": part})], ["When?"], words=8)
        assert shown.text


def test_of_two_versions_of_a_page_one_tells_what_both_hold() -> None:
    menu, fact = "Home Products Support Contact", "The obsolete date must be after the deprecate date."
    old, new = (Document(f"{menu}\n{fact}\nThis is version {n}.") for n in (1, 2))
    first, second = excerpts([old, new], ["Which date is first?"], words=150)
    assert first.text == f"{fact}\nThis is version 1."
    assert second.text == "This is version 2."
