import pytest

from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.datasets.read import load_part
from langgraph_convcoa.datasets.splits import in_dev_part
from langgraph_convcoa.errors import InputError
from tests.data import write_dataset


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
