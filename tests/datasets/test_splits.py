from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langgraph_convcoa.datasets.queries import Dataset, Query, in_dev_part, split_of, split_part
from langgraph_convcoa.datasets.read import load_part
from langgraph_convcoa.errors import InputError
from tests.data import write_dataset


def dataset(*rows):
    queries = tuple(Query(str(n), "Who?", conversation=name, split=split) for n, (name, split) in enumerate(rows))
    return Dataset("made", queries, ())


def test_own_splits_are_kept_and_shared_conversations_are_not_trained_on():
    made = dataset(("a", "train"), ("b", "train"), ("b", "dev"), ("c", "dev"), ("d", "test"))
    dev, train = split_part(made, "dev"), split_part(made, "train")
    assert [query.id for query in dev.dataset.queries] == ["2", "3"]
    assert [query.id for query in train.dataset.queries] == ["0"]
    assert (train.left_out, train.name, dev.name) == (1, "train", "dev")


@pytest.mark.parametrize("name", ["developer_faq.json", "values.json", "testimonials.jsonl", "trainers_guide.json"])
def test_a_word_that_only_begins_as_a_split_does_is_none(name):
    assert split_of(Path(name)) == ""


def test_the_word_of_a_split_stands_anywhere_in_the_name():
    names = ("coqa-dev-v1.0.json", "MY-Training.json", "validation.jsonl", "scai-qrecc21-test-turns.json", "train_set.json")
    assert [split_of(Path(name)) for name in names] == ["dev", "train", "dev", "test", "train"]


@given(st.lists(st.text(max_size=5), min_size=1), st.floats(0, 1))
def test_hashed_parts_are_whole_conversations_and_make_up_the_data(names, share):
    made = dataset(*((name, "train") for name in names for _ in range(2)))
    parts = {}
    for part in ("train", "dev"):
        try:
            parts[part] = split_part(made, part, dev_share=share).dataset.queries
        except InputError:
            parts[part] = ()
    train, dev = ({query.conversation_id for query in parts[part]} for part in ("train", "dev"))
    assert not train & dev
    assert len(parts["train"]) + len(parts["dev"]) == len(made.queries)


def test_the_hash_is_stable_and_of_the_share():
    assert [n for n in range(12) if in_dev_part(f"c{n}", 0.2)] == [0, 4, 10]
    assert 0.18 < sum(in_dev_part(f"x{n}", 0.2) for n in range(5000)) / 5000 < 0.22


def test_an_empty_part_is_an_error():
    with pytest.raises(InputError, match="made has no queries for the train part; its splits: dev"):
        split_part(dataset(("a", "dev")), "train")
    with pytest.raises(InputError, match="no queries for the dev part; its splits: test"):
        split_part(dataset(("a", "test")), "dev")


def write(folder, splits):
    queries = [Query(str(n), "Who?", conversation=f"c{n}", split=split) for n, split in enumerate(splits)]
    return write_dataset(folder, queries, [{"id": "p", "text": "Ada."}])


def test_a_split_of_its_own(tmp_path):
    folder = write(tmp_path / "own", ["train", "dev", "test"])
    for split, expected in ((None, "012"), ("dev", "1"), ("test", "2")):
        dataset, part = load_part(folder, split)
        assert "".join(query.id for query in dataset.queries) == expected
        assert part == (split or "")
    with pytest.raises(InputError, match=r"no queries of the split 'x'; its splits: dev, test, train\."):
        load_part(folder, "x")


def test_the_part_that_training_leaves_out(tmp_path):
    dataset, part = load_part(write(tmp_path / "one", ["train"] * 30), "dev")
    assert [query.id for query in dataset.queries] == [str(n) for n in range(30) if in_dev_part(f"c{n}")]
    assert part == "dev: 20% of the conversations, by hash"
