"""The rows of a run: methods, models, and ours with a setting of its own."""

from __future__ import annotations

import pytest

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.runs.sweeps import Variant, parse_sweeps, variants


def test_rows_of_methods_models_and_sweeps() -> None:
    rows = variants(["react", "ours", "ours-without-cks"], ["a", "b"], {"threshold": (0.5,), "k": (1.0, 3.0)})
    assert len(rows) == 2 * (3 + 1 + 2)
    assert rows[0] == Variant("react@a", "react", 0)
    assert rows[3] == Variant("ours@a@T=0.5", "ours", 0, threshold=0.5, swept="threshold")
    assert rows[-1] == Variant("ours@b@k=3", "ours", 1, k=3, swept="k")
    assert len({row.label for row in rows}) == len(rows)


def test_values_once_in_the_order_given() -> None:
    assert parse_sweeps(["k=5,1,5"]) == {"k": (5.0, 1.0)}
    assert parse_sweeps([]) == {}


@pytest.mark.parametrize(
    "text", ["k", "k=", "k=1.5", "k=0", "k=101", "threshold=2", "threshold=nan", "T=0.5", "k=1,x", "k=inf"]
)
def test_bad_sweeps_are_told(text: str) -> None:
    with pytest.raises(InputError, match="--sweep"):
        parse_sweeps([text])


def test_bad_rows_are_told() -> None:
    with pytest.raises(InputError, match="--sweep"):
        parse_sweeps(["k=1", "k=2"])
    with pytest.raises(InputError, match="each method once"):
        variants(["ours", "ours"])
    with pytest.raises(InputError, match="at least one method"):
        variants([])
    with pytest.raises(InputError, match="each model once"):
        variants(["ours"], ["a", "a"])
    with pytest.raises(InputError, match="add ours"):
        variants(["react"], sweeps={"k": (1.0,)})
