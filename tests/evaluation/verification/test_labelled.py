"""`guesses.jsonl` beside this file: 130 guesses on 90 questions of MTRAG and QuAC, labelled against five passages that were
retrieved for each; the passages' texts are read from the shared data by their ids.
"""

import json
from pathlib import Path

import pytest

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.verification.labelled import HALVES, evaluate_labelled, load_labelled
from langgraph_convcoa.retrieval.encoders.choice import as_encoder
from tests import SHARED
from tests.fake_encoder import WordEncoder

FILE = Path(__file__).parent / "guesses.jsonl"
ROW = {
    "id": "a",
    "data": "set",
    "conversation": "c1",
    "sub_question": "When was the bridge closed?",
    "guess": "It was closed in 1988 by the city.",
    "kind": "sentence",
    "passages": ["p"],
    "label": 2,
}


@pytest.fixture
def files(tmp_path):
    folder = tmp_path / "data" / "set"
    folder.mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(json.dumps({"id": "p", "title": "", "text": "The city closed the bridge in 1988."}))
    question = {"id": "q", "question": "When?", "gold": ["p"], "answer": "1988", "history": []}
    (folder / "queries.jsonl").write_text(json.dumps(question))

    def write(*rows):
        file = tmp_path / "guesses.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return file, tmp_path / "data"

    return write


def test_what_is_kept_of_each_label(files):
    wrong = {**ROW, "id": "b", "guess": "It was closed in 1977 by the city.", "label": 0}
    report = evaluate_labelled(*files(ROW, wrong), WordEncoder())
    row = report.rows[0]
    assert (row.group, row.counts, row.kept, row.auc) == ("all", (1, 0, 1), (1.0, None, 0.0), 1.0)
    assert "supported kept" in str(report.tables()[0].columns)


def test_conversations_are_halved_whole(files):
    rows = load_labelled(FILE)
    assert len(rows) == 130
    halves = {row.conversation: row.half for row in rows}
    assert all(row.half == halves[row.conversation] for row in rows)
    assert set(halves.values()) == set(HALVES)


def test_a_passage_that_is_not_there_is_named(files):
    with pytest.raises(InputError, match="no passage 'x', which a names"):
        evaluate_labelled(*files({**ROW, "passages": ["x"]}), WordEncoder())


def test_a_wrong_row_is_named(files):
    file, folder = files({**ROW, "label": "yes"})
    with pytest.raises(InputError, match="label"):
        evaluate_labelled(file, folder, WordEncoder())


@pytest.mark.data
@pytest.mark.slow
def test_real_guesses():
    if not (SHARED / "data" / "mtrag").is_dir():
        pytest.skip("the shared evaluation data is absent; set CONVCOA_SHARED")
    rows = {row.group: row for row in evaluate_labelled(FILE, SHARED / "data", as_encoder(None)).rows}
    assert rows["all"].counts == (53, 28, 49)
    assert rows["all"].auc >= 0.7
