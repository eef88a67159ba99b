import pytest
from langchain_core.documents import Document

from langgraph_convcoa.retrieval.corpus import allowed_passages

PASSAGES = [Document("a", id="a", metadata={"year": 2016, "tags": ["x"]}), Document("b", id="b", metadata={"year": None})]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({}, [True, True]),
        ({"year": 2016}, [True, False]),
        ({"year": {2016, 1}}, [True, False]),
        ({"year": []}, [False, False]),
        ({"year": None}, [False, True]),
        ({"other": 1}, [False, False]),
        (lambda passage: passage.id == "b", [False, True]),
    ],
)
def test_conditions(condition, expected):
    assert allowed_passages(PASSAGES, condition).tolist() == expected


def test_no_condition_allows_all():
    assert allowed_passages(PASSAGES, None) is None


def test_an_empty_memory():
    assert allowed_passages([], {"a": 1}).shape == (0,)
