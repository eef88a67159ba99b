import time

import numpy as np
import pytest
from langchain_core.documents import Document

from langgraph_convcoa.retrieval.graph.names import name_hash, names_in, names_of


def named(text, **metadata):
    found = set((names_of(Document(text, metadata=metadata)).names & ~1).tolist())
    return lambda *names: [name for name in names if name_hash(name) in found]


def test_runs_of_capitals_are_names():
    text = "In 1994 Tim Burton's Ed Wood met J. K. Rowling of Oxford. The United States, Ada and Bob were there; so was it."
    has = named(text)
    wanted = ["Tim Burton", "Ed Wood", "J. K. Rowling of Oxford", "United States", "Ada", "Bob"]
    assert has(*wanted) == wanted
    assert has("The United States", "In", "Burton", "Ada and Bob", "1994", "so") == []


def test_given_names_and_the_ends_of_triples_are_names():
    has = named("nothing here", entities=["photosynthesis", 7, "the"], triples=[["Ada", "wrote", "notes"], "no triple", ["a"]])
    assert has("photosynthesis", "Ada", "notes") == ["photosynthesis", "Ada", "notes"]
    assert has("wrote") == []


@pytest.mark.parametrize(
    "value", [None, 7, "Ada", {"a": 1}, [None], [["Ada"]], ["cat"], [{"a": 1, "b": 2}], [["A", "b", "C", "d"]]]
)
def test_metadata_of_another_shape_names_nothing(value):
    assert names_of(Document("nothing here", metadata={"triples": value})).names.tolist() == []
    if value not in (["cat"],):
        assert names_of(Document("nothing here", metadata={"entities": value})).names.tolist() == []


@pytest.mark.parametrize(
    ("title", "form"),
    [("Ed Wood (film)", "ed wood"), ("ED WOOD", "Ed Wood"), ("(500) Days of Summer", "500 days of summer"), ("東京", "東京")],
)
def test_a_title_is_known_by_its_words(title, form):
    assert names_of(Document("x", metadata={"title": title})).title == name_hash(form) != 0


@pytest.mark.parametrize("title", ["", "(", "1984", "It", "...", "a b c d e f g h i", None, 7])
def test_titles_that_no_text_could_be_searched_for(title):
    assert names_of(Document("x", metadata={"title": title})).title == 0


def test_a_triple_may_be_without_a_predicate():
    assert named("nothing here", triples=[("Ada", "Bob"), ["Carol", "met", 7]])("Ada", "Bob", "Carol") == [
        "Ada",
        "Bob",
        "Carol",
    ]


def test_a_question_of_many_names_takes_a_time_that_is_linear_in_them():
    def taken(count):
        names = [f"name{n}" for n in range(count)]
        known = np.sort([name_hash(name) for name in names])
        started = time.thread_time()
        assert [name.text for name in names_in(" ".join(names), known)] == names
        return time.thread_time() - started

    # Sixteen times if each name is compared with all that were found before it.
    assert taken(30_000) < 9 * min(taken(7_500) for _ in range(3)) + 0.2


def test_of_names_that_overlap_the_longest_is_meant():
    known = np.sort([name_hash(name) for name in ("Ed Wood", "Wood", "Wood Green", "Tim")])
    found = names_in("Did ed wood, or Tim, live in Wood Green?", known)
    assert [name.text for name in found] == ["ed wood", "Tim", "Wood Green"]
    assert names_in("", known) == names_in("Ed Wood", known[:0]) == []
