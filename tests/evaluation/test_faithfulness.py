import gzip
import io
import json
import os
from pathlib import Path

import pytest
from rich.console import Console

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.faithfulness import evaluate_faithfulness
from langgraph_convcoa.evaluation.guesses import evaluate_guesses

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


def row(report, method, part="all"):
    return next(r for r in report.rows if (r.method, r.part) == (method, part))


def test_rows_for_every_method_and_half(tmp_path):
    report = evaluate_faithfulness(judgements(tmp_path / "j.jsonl.gz"))
    assert len(report.rows) == 4 * 3
    assert {(r.part, r.n) for r in report.rows} == {("all", 8), ("first half", 4), ("second half", 4)}
    assert row(report, "default").auc == 1.0
    assert row(report, "default").balanced_accuracy == 1.0
    assert report.raters > 0.9
    json.dumps(report.to_dict(), allow_nan=False)
    console = Console(record=True, width=120, file=io.StringIO())
    console.print(report)
    assert "second half" in console.export_text()


def test_history_is_evidence_when_asked_for(tmp_path):
    file = judgements(tmp_path / "j.jsonl.gz")
    assert row(evaluate_faithfulness(file), "default").auc == 1.0
    assert row(evaluate_faithfulness(file, history=True), "default").auc < 1.0


def test_bad_judgements(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        evaluate_faithfulness(tmp_path / "absent.jsonl")
    (tmp_path / "bad.jsonl").write_text('{"id": 1}\n')
    with pytest.raises(InputError, match="field is missing"):
        evaluate_faithfulness(tmp_path / "bad.jsonl")
    (tmp_path / "prose.jsonl").write_text("no JSON\n")
    with pytest.raises(InputError, match="cannot read"):
        evaluate_faithfulness(tmp_path / "prose.jsonl")
    with pytest.raises(InputError, match="rated below 3"):
        evaluate_faithfulness(judgements(tmp_path / "one.jsonl.gz", ANSWERS[:2]))
    (tmp_path / "cut.jsonl.gz").write_bytes(judgements(tmp_path / "j.jsonl.gz").read_bytes()[:60])
    with pytest.raises(InputError, match="cannot read"):
        evaluate_faithfulness(tmp_path / "cut.jsonl.gz")


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
    console = Console(record=True, width=120, file=io.StringIO())
    console.print(report)
    assert "another answer of the passage" in console.export_text()
    assert report.to_dict() == evaluate_guesses(folder).to_dict()
    assert evaluate_guesses(folder, n=2).rows[0].n == 2


def test_guesses_that_cannot_be_made(folder):
    with pytest.raises(InputError, match="two answered questions"):
        evaluate_guesses(folder, split="train")
    with pytest.raises(InputError, match="at least 2"):
        evaluate_guesses(folder, n=1)


@pytest.mark.data
@pytest.mark.slow
def test_agreement_with_people():
    shared = Path(os.environ.get("CONVCOA_SHARED") or Path(__file__).parents[3] / "shared")
    file = shared / "data" / "mtrag_faithfulness" / "judgements.jsonl.gz"
    if not file.is_file():
        pytest.skip("the shared evaluation data is absent; set CONVCOA_SHARED")
    report = evaluate_faithfulness(file)
    whole = row(report, "default")
    assert whole.auc >= 0.88
    assert whole.spearman >= 0.75
    assert row(report, "plain (papers)").spearman < 0.65
