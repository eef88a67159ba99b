import logging

import pytest

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.training.data import load_training_data
from tests import SHARED
from tests.data import write_dataset

CORPUS = [{"id": "p", "text": "Ada was born in 1815."}, {"id": "q", "text": "Bees fly."}, {"id": "empty", "text": " "}]


def query(identity="1", **more):
    row = {"id": identity, "question": "When?", "gold": ["p"], "conversation_id": f"c{identity}", "split": "train"}
    return row | {"history": [["Who?", "Ada."]], "rewrite": "When was Ada born?"} | more


def write(folder, *queries, corpus=CORPUS):
    """A data set of a question to train on, one of the dev part, and others."""
    return write_dataset(folder, queries or [query(), query("2", split="dev")], corpus)


def test_examples_bear_their_source(tmp_path):
    folder = write(tmp_path / "a")
    data = load_training_data([folder])
    (example,) = data.examples
    assert (example.question, example.history, example.rewrite) == ("When?", (("Who?", "Ada."),), "When was Ada born?")
    assert (example.gold, example.source) == (("p",), "a")
    assert data.sources == {"a": 1}


def test_sources_share_passages_but_not_ids_of_two_texts(tmp_path):
    first = write(tmp_path / "a")
    second = write(tmp_path / "b")
    data = load_training_data([first, second])
    assert [passage.id for passage in data.passages] == ["p", "q", "empty"]
    assert data.sources == {"a": 1, "b": 1}
    other = write(tmp_path / "c", corpus=[{"id": "p", "text": "Other."}])
    with pytest.raises(InputError, match="'p' stands for two texts, one of them in c"):
        load_training_data([first, other])
    with pytest.raises(InputError, match="both named a"):
        load_training_data([first, write(tmp_path / "deep" / "a")])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (query("3", gold=[]), "the query '3' has no gold passage"),
        (query("3", gold=["p", "lost"]), "the corpus has no passage 'lost', gold for the query '3'"),
        (query("3", gold=["empty"]), "the corpus has no passage 'empty'"),
    ],
)
def test_a_query_that_cannot_be_learned_from_is_left_out_with_a_warning(tmp_path, caplog, bad, message):
    folder = write(tmp_path / "a", query(), query("2", split="dev"), bad)
    with caplog.at_level(logging.WARNING):
        assert len(load_training_data([folder]).examples) == 1
    [record] = caplog.records
    said, where = record.getMessage(), folder / "queries.jsonl"
    assert f"a: left out 1 queries that cannot be learned from; the first: {where}, line 3" in said
    assert message in said


def test_a_question_marked_unanswerable_is_left_out(tmp_path, caplog):
    marked = query("3", gold=[], answerable=False)
    assert len(load_training_data([write(tmp_path / "a", query(), query("2", split="dev"), marked)]).examples) == 1
    assert not caplog.records


def test_nothing_to_train_on(tmp_path):
    with pytest.raises(InputError, match="name at least one"):
        load_training_data([])
    with pytest.raises(InputError, match=r"a has no queries for the train part; its splits: dev\."):
        load_training_data([write(tmp_path / "a", query(split="dev"))])
    folder = write(tmp_path / "b", query(gold=[], answerable=False), query("2", split="dev"))
    with pytest.raises(InputError, match="no query with a gold passage in the train part"):
        load_training_data([folder])


@pytest.mark.data
def test_the_parts_of_the_shared_data():
    shared = SHARED / "data"
    if not shared.is_dir():
        pytest.skip("the shared evaluation data is not here")
    folders = [shared / name for name in ("abg_coqa", "or_sharc", "quac_dev", "pacific")]
    train, dev = (load_training_data(folders, part=part) for part in ("train", "dev"))
    # 711 of or_sharc's 2,373 training questions are of conversations that dev has as well.
    assert train.sources == {"abg_coqa": 1241, "or_sharc": 1662, "quac_dev": 2014, "pacific": 1541}
    assert dev.sources == {"abg_coqa": 1230, "or_sharc": 1105, "quac_dev": 535, "pacific": 407}
