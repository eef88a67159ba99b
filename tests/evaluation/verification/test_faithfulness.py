import gzip
import io
import itertools
import json

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from rich.console import Console
from sklearn.metrics import roc_auc_score

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.reports.kit import save_picture
from langgraph_convcoa.evaluation.verification.agreement import Interval, agreements, rater_agreement, reliability
from langgraph_convcoa.evaluation.verification.faithfulness import evaluate_faithfulness, load_judgements
from langgraph_convcoa.verification.calibration import spearman_of
from tests import SHARED

PASSAGE = "The network was described by John Hopfield in 1982. It stores patterns as minima of an energy function."
ANSWERS = [
    ("The network was described by John Hopfield.", 4.0),
    ("It stores patterns as minima.", 3.67),
    ("Kohonen described maps in 1990.", 1.33),
    ("Bread is baked daily in ovens.", 1.0),
]


def judgements(path, answers=ANSWERS, conversations=2):
    rows = [
        {
            "id": f"{c}-{n}",
            "conversation_id": f"c{c}",
            "turns": [
                {"speaker": "user", "text": "Hello?"},
                {"speaker": "agent", "text": "Kohonen described maps in 1990."},
                {"speaker": "user", "text": "And?"},
            ],
            "passages": [PASSAGE],
            "response": text,
            "faithfulness": grade,
            "ratings": [grade, grade, min(grade + 0.1 * n, 4)],
        }
        for c in range(conversations)
        for n, (text, grade) in enumerate(answers)
    ]
    with gzip.open(path, "wt", encoding="utf-8") as out:
        out.write("\n".join(map(json.dumps, rows)))
    return path


def rows_of(path):
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def row(report, method):
    return next(r for r in report.rows if r.method == method)


def shown(report):
    console = Console(record=True, width=140, file=io.StringIO())
    console.print(report)
    return console.export_text()


def test_every_method_with_intervals_and_gains(tmp_path):
    report = evaluate_faithfulness(judgements(tmp_path / "j.jsonl.gz", conversations=3))
    assert report.rows[0].method == "default"
    assert len(report.rows) == 5
    assert {r.n for r in report.rows} == {12}
    assert row(report, "default").agreement.auc == Interval(1.0, 1.0, 1.0)
    assert row(report, "default").balanced_accuracy == 1.0
    assert row(report, "plain (papers)").agreement.auc_gain == Interval(0.0, 0.0, 0.0)
    assert report.raters > 0.9
    assert sum(report.suggested_weights) == pytest.approx(1.0)
    json.dumps(report.to_dict(), allow_nan=False)
    assert "reliability" in shown(report)


@pytest.mark.slow
def test_the_fitted_row_never_sees_its_own_conversation(tmp_path):
    """Where one conversation's ratings are turned round, the others still fit it wrongly."""
    turned = [(text, 5.0 - grade) for text, grade in ANSWERS]
    file = judgements(tmp_path / "a.jsonl", conversations=2)
    rows = rows_of(file)
    other = rows_of(judgements(tmp_path / "b.jsonl", turned, 1))
    (tmp_path / "both.jsonl").write_text(
        "\n".join(json.dumps(r) for r in rows + [r | {"conversation_id": "t"} for r in other])
    )
    report = evaluate_faithfulness(tmp_path / "both.jsonl")
    fitted = row(report, "default, fitted on the others")
    assert fitted.threshold is None
    assert fitted.agreement.auc.value < 1.0
    assert report.conversations == 3


@pytest.mark.slow
def test_history_is_evidence_when_asked_for(tmp_path):
    file = judgements(tmp_path / "j.jsonl.gz")
    assert row(evaluate_faithfulness(file), "default").agreement.auc.value == 1.0
    assert row(evaluate_faithfulness(file, history=True), "default").agreement.auc.value < 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"passages": "text"}, "line 3: passages"),
        ({"response": None}, "line 3: response"),
        ({"faithfulness": "good"}, "line 3: faithfulness"),
        ({"faithfulness": True}, "line 3: faithfulness"),
        ({"faithfulness": None}, "line 3: faithfulness"),
        ({"ratings": [None]}, "line 3: ratings"),
        ({"ratings": 3}, "line 3: ratings"),
        ({"turns": [{"speaker": "user"}, {}]}, "line 3: turns"),
        ({"turns": "Hello?"}, "line 3: turns"),
    ],
)
def test_a_wrong_row_is_named(tmp_path, change, message):
    rows = rows_of(judgements(tmp_path / "j.jsonl.gz"))
    rows[2] |= change
    (tmp_path / "bad.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(InputError, match=message):
        load_judgements(tmp_path / "bad.jsonl")


def test_a_rating_will_do_for_faithfulness_and_a_row_for_a_conversation(tmp_path):
    (tmp_path / "few.jsonl").write_text('{"passages": ["a"], "response": "b", "rating": 2}\n' * 2)
    found = load_judgements(tmp_path / "few.jsonl")
    assert [j.grade for j in found] == [2.0, 2.0]
    assert found[0].conversation != found[1].conversation


def test_bad_judgements(tmp_path):
    with pytest.raises(InputError, match=r"absent\.jsonl"):
        evaluate_faithfulness(tmp_path / "absent.jsonl")
    (tmp_path / "prose.jsonl").write_text("no JSON\n")
    with pytest.raises(InputError, match="line 1: not JSON"):
        evaluate_faithfulness(tmp_path / "prose.jsonl")
    with pytest.raises(InputError, match="rated below 3"):
        evaluate_faithfulness(judgements(tmp_path / "one.jsonl.gz", ANSWERS[:2]))
    with pytest.raises(InputError, match="rated below 3"):
        evaluate_faithfulness(judgements(tmp_path / "single.jsonl.gz", conversations=1))
    whole = judgements(tmp_path / "j.jsonl.gz").read_bytes()
    (tmp_path / "cut.jsonl.gz").write_bytes(whole[:60])
    with pytest.raises(InputError):
        evaluate_faithfulness(tmp_path / "cut.jsonl.gz")


def test_constant_scores_fall_into_one_bin():
    (found,) = reliability(np.zeros(5), np.arange(5.0), 3.0, 4)
    assert (found.n, found.faithful) == (5, 0.4)


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 4)), min_size=1, max_size=40), st.integers(1, 8))
def test_every_answer_falls_into_one_bin(rows, bins):
    scores, grades = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    found = reliability(scores, grades, 3.0, bins)
    assert sum(b.n for b in found) == len(rows)
    assert len(found) <= bins
    assert all(left.high <= right.low for left, right in itertools.pairwise(found))
    assert sum(b.faithful * b.n for b in found) == pytest.approx((grades >= 3).sum())


@given(
    st.lists(st.tuples(st.sampled_from([0.1, 0.5, 0.9]), st.integers(1, 4), st.sampled_from("abc")), min_size=2, max_size=20)
)
def test_figures_are_those_of_the_libraries(rows):
    scores, grades = (np.array([r[i] for r in rows], dtype=float) for i in (0, 1))
    assume(len(set(grades >= 3)) == 2)
    found = agreements({"x": scores}, grades, 3.0, [r[2] for r in rows], baseline="x", resamples=3)["x"]
    assert found.auc.value == pytest.approx(roc_auc_score(grades >= 3, scores))
    assert found.spearman.value == pytest.approx(spearman_of(scores, grades))
    assert found.auc_gain.value == 0.0


def test_raters_who_always_say_the_same_agree_on_nothing():
    assert rater_agreement([[1, 1], [1, 1]]) is None
    assert rater_agreement([]) is None
    assert rater_agreement([[1, 1], [2, 2], [3, 3]]) == pytest.approx(1.0)


@pytest.mark.slow
def test_the_curve_is_drawn(tmp_path):
    save_picture(evaluate_faithfulness(judgements(tmp_path / "j.jsonl.gz")).figure(), tmp_path / "curve.svg")
    assert "<svg" in (tmp_path / "curve.svg").read_text()


@pytest.mark.data
@pytest.mark.slow
def test_agreement_with_people():
    file = SHARED / "data" / "mtrag_faithfulness" / "judgements.jsonl.gz"
    if not file.is_file():
        pytest.skip("the shared evaluation data is absent; set CONVCOA_SHARED")
    report = evaluate_faithfulness(file)
    for method in ("default", "default, fitted on the others"):
        agreement = row(report, method).agreement
        assert agreement.auc.value >= 0.91
        assert agreement.spearman.value >= 0.77
        assert agreement.auc_gain.value >= 0.02
        assert agreement.spearman_gain.value >= 0.10
    assert row(report, "plain (papers)").agreement.spearman.value < 0.65
