import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.reports.kit import save_picture
from langgraph_convcoa.evaluation.verification.guess_fit import fit_guesses
from langgraph_convcoa.evaluation.verification.guesses import evaluate_guesses, load_cases, saving, within_error
from langgraph_convcoa.verification.relevance import RELEVANCE_WEIGHTS
from tests import SHARED

PASSAGE = "The network was described by John Hopfield in 1982. It stores patterns as minima of an energy function."


@pytest.fixture
def folder(tmp_path):
    corpus = [
        {"id": "p", "title": "Hopfield network", "text": PASSAGE},
        {"id": "q", "title": "Bread", "text": "Bread is baked in 1990."},
    ]
    queries = [
        {"id": "1", "question": "When was the network described?", "answer": "1982", "gold": ["p"], "split": "dev"},
        {"id": "2", "question": "Who described the network?", "answer": "John Hopfield", "gold": ["p"], "split": "dev"},
        {"id": "3", "question": "What does it store?", "answer": "patterns", "gold": ["p"], "split": "dev"},
        {"id": "4", "question": "When is bread baked?", "answer": "1990", "gold": ["q"], "split": "dev"},
        {"id": "5", "question": "Unanswerable?", "answer": "", "gold": ["q"], "split": "dev"},
        {"id": "6", "question": "Of another split?", "answer": "bread", "gold": ["q"], "split": "train"},
    ]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def test_guesses(folder):
    report = evaluate_guesses(folder)
    assert [r.n for r in report.rows] == [3] * 4
    default, plain = report.rows[0], report.rows[2]
    assert default.auc > plain.auc
    assert 0 < report.fitted_threshold < 1
    console = Console(record=True, width=140, file=io.StringIO())
    console.print(report)
    for words in ("another answer of the passage", "corrections that T saves", "saved at a given error"):
        assert words in console.export_text(clear=False)
    json.dumps(report.to_dict(), allow_nan=False)
    assert report.to_dict() == evaluate_guesses(folder).to_dict()
    assert evaluate_guesses(folder, n=2).rows[0].n == 2


def test_guesses_that_cannot_be_made(folder):
    with pytest.raises(InputError, match="two answered questions"):
        evaluate_guesses(folder, split="train")
    with pytest.raises(InputError, match="at least 2"):
        evaluate_guesses(folder, n=1)
    with pytest.raises(InputError, match="no queries of the split 'test'"):
        evaluate_guesses(folder, split="test")
    with pytest.raises(InputError, match="share of right guesses"):
        evaluate_guesses(folder, right_shares=[1.0])


@pytest.fixture
def talks(tmp_path):
    """Conversations of two turns, without a split "dev"."""
    names = ["Ada", "Bob", "Cid", "Dora", "Eve", "Finn", "Gus", "Hal", "Ida", "Jon", "Kim", "Leo"]
    corpus, queries = [], []
    for n, name in enumerate(names):
        corpus.append({"id": f"p{n}", "title": "", "text": f"The bridge opened in {1900 + n}. {name} Stone built the tower."})
        turns = [("When did the bridge open?", f"in {1900 + n}"), ("Who built the tower?", f"{name} Stone")]
        for turn, (question, answer) in enumerate(turns):
            row = {"id": f"{n}-{turn}", "conversation_id": f"c{n}", "question": question, "answer": answer, "gold": [f"p{n}"]}
            queries.append(row | {"split": "train", "history": turns[:turn]})
    folder = tmp_path / "talks"
    folder.mkdir()
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def test_what_is_fitted_on_is_never_reported(talks):
    reported, name = load_cases(talks, n=100)
    fitted, other = load_cases(talks, n=100, part="train")
    assert {c.conversation for c in reported}.isdisjoint(c.conversation for c in fitted)
    assert len(reported) + len(fitted) == 24
    assert (name, other) == ("65% of the conversations, by hash", "35% of the conversations, by hash")


def test_the_answers_so_far_are_told(talks):
    cases, _ = load_cases(talks, n=100)
    assert {(len(c.references.references), c.new) for c in cases} == {(1, True), (2, False)}
    assert all(len(c.references.references) == 1 for c in load_cases(talks, n=100, history=False)[0])
    assert {r.wrong for r in evaluate_guesses(talks).rows} >= {"the same, not given before"}


def test_weights_are_fitted_on_the_training_part(talks):
    fit = fit_guesses([talks])
    ((name, part, n),) = fit.sources
    assert (name, part) == ("talks", "35% of the conversations, by hash")
    assert n == len(load_cases(talks, n=100, part="train")[0])
    assert fit.weights.keys() - {"bias"} <= RELEVANCE_WEIGHTS.keys()
    assert fit.to_dict() == fit_guesses([talks]).to_dict()
    console = Console(record=True, width=140, file=io.StringIO())
    console.print(fit)
    assert "by hash" in console.export_text()


def test_what_a_threshold_keeps():
    right, wrong = np.array([0.9, 0.7, 0.4]), np.array([0.8, 0.2, 0.1])
    assert saving(right, wrong, 0.95, 0.5).error is None
    found = saving(right, wrong, 0.5, 0.5)
    assert (found.kept, found.error) == (pytest.approx(0.5), pytest.approx(1 / 3))
    assert saving(right, wrong, 0.5, 0.8).error < found.error


scores = st.lists(st.floats(0, 1), min_size=1, max_size=20).map(np.array)


@given(scores, scores, st.floats(0.1, 0.9))
def test_a_higher_threshold_keeps_no_more(right, wrong, share):
    kept = [saving(right, wrong, threshold, share).kept for threshold in np.linspace(0, 1, 21)]
    assert kept == sorted(kept, reverse=True)


@given(scores, scores, st.floats(0.1, 0.9), st.floats(0, 1))
def test_the_error_stays_within_what_was_asked(right, wrong, share, error):
    found = within_error(right, wrong, error, share)
    if found is not None:
        assert found.error <= error
        assert found == saving(right, wrong, found.threshold, share)


def test_the_curves_are_drawn(folder, tmp_path):
    figure = evaluate_guesses(folder).figure()
    save_picture(figure, tmp_path / "savings.svg")
    assert "<svg" in (tmp_path / "savings.svg").read_text()
    with pytest.raises(InputError, match="cannot be written"):
        save_picture(figure, tmp_path / "savings.words")


def shared(name):
    path = SHARED / "data" / name
    if not path.is_dir():
        pytest.skip("the shared evaluation data is absent; set CONVCOA_SHARED")
    return path


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("name", ["squad2", "quac_dev"])
def test_right_guesses_are_told_from_wrong_ones(name):
    report = evaluate_guesses(shared(name), n=1000)
    assert (report.rows[0].method, report.rows[0].wrong, report.rows[0].n) == (
        "default",
        "another answer of the passage",
        1000,
    )
    assert report.rows[0].auc >= 0.86


@pytest.mark.data
@pytest.mark.slow
def test_the_weights_are_what_the_command_fits():
    found = fit_guesses([shared("squad2"), shared("abg_coqa"), shared("quac_dev")]).weights
    assert found.keys() == RELEVANCE_WEIGHTS.keys()
    assert all(found[name] == pytest.approx(weight, abs=0.02) for name, weight in RELEVANCE_WEIGHTS.items())
