from __future__ import annotations

import json

import pytest

from langgraph_convcoa.datasets.labelled_claims import RatedAnswer, read_rated_answers
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.verification import evaluate_ratings

BRIDGE = (("Bridge", "The bridge opened in 1894. It fell in 1907."),)
ANSWERS = [
    RatedAnswer("The bridge opened in 1894. It fell in 1907.", BRIDGE, 4.0),
    RatedAnswer("The bridge opened in 1894. Gustave Eiffel drew the plans.", BRIDGE, 2.0),
    RatedAnswer("Gustave Eiffel drew the plans of the tower.", BRIDGE, 1.0),
    RatedAnswer("I do not know.", BRIDGE, 4.0),
]


def test_scores_follow_the_ratings():
    report = evaluate_ratings(ANSWERS, ["lexical"])
    (row,) = report.rows
    assert report.answers == 3, "an answer that claims nothing is left out"
    assert (row.auc, row.spearman) == pytest.approx((1.0, 1.0))
    assert (row.rejected, row.sentences) == (0.0, 2)


def test_ratings_of_one_kind_measure_nothing():
    with pytest.raises(InputError, match="only one of them"):
        evaluate_ratings(ANSWERS[:1])


def test_the_command_reads_rated_answers(tmp_path, cli):
    file = tmp_path / "rated.jsonl"
    rows = [{"response": a.answer, "passages": [a.evidence[0][1]], "faithfulness": a.faithfulness} for a in ANSWERS]
    file.write_text("\n".join(map(json.dumps, rows)))
    done = cli("evaluate", "verification", file, "--json", "--verifiers", "lexical")
    assert json.loads(done.stdout)["answers"] == 3


@pytest.mark.parametrize("rating", [None, True, 5, "4"])
def test_a_rating_out_of_range_is_named(tmp_path, rating):
    file = tmp_path / "rated.jsonl"
    file.write_text(json.dumps({"response": "a", "passages": ["x"], "faithfulness": rating}))
    with pytest.raises(InputError, match="line 1: `faithfulness` must be"):
        list(read_rated_answers(file))
