from __future__ import annotations

import pytest

from experiments.ratings.__main__ import compare
from langgraph_convcoa.datasets.rows import Row
from langgraph_convcoa.errors import InputError

PASSAGES = ["The bridge opened in 1894. It fell in 1907."]
RATED = {
    "The bridge opened in 1894. It fell in 1907.": 4.0,
    "The bridge opened in 1894. Gustave Eiffel drew the plans.": 2.0,
    "Gustave Eiffel drew the plans of the tower.": 1.0,
    "I do not know.": 4.0,
}
ROWS = [Row({"response": text, "passages": PASSAGES, "faithfulness": rating}, "line 1") for text, rating in RATED.items()]


def test_scores_follow_the_ratings():
    table = compare(ROWS, ["lexical"])
    assert table.note == "3 rated answers", "an answer that claims nothing is left out"
    assert table.rows == [("lexical", "1.000", "1.000", "0.000 of 2 sentences")]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (ROWS[:1], "only one of them"),
        *(([Row({**ROWS[0], "faithfulness": rating}, "line 1")], "line 1: `faithfulness`") for rating in (None, True, 5, "4")),
    ],
)
def test_data_that_cannot_be_compared_is_named(rows, message):
    with pytest.raises(InputError, match=message):
        compare(rows, ["lexical"])
