import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.training.data import TrainingExample
from langgraph_convcoa.training.negatives import gold_mask, mine_negatives

PASSAGES = [
    Document("Gold, first part.", id="gold#0", metadata={"document_id": "gold"}),
    Document("Gold, second part.", id="gold#1", metadata={"document_id": "gold"}),
    Document("Gold, second part.", id="copy"),
    *(Document(f"Text {n}.", id=f"p{n}") for n in range(20)),
]


class Ranked:
    """Gives the passages in their order, and counts."""

    def __init__(self, stop_after=None):
        self.asked = 0
        self.stop_after = stop_after

    def search_batch(self, queries, histories=None, k=None):
        if self.stop_after is not None and self.asked >= self.stop_after:
            raise KeyboardInterrupt
        self.asked += len(queries)
        assert len(histories) == len(queries)
        return [[(passage.id, 1.0) for passage in PASSAGES[:k]] for _ in queries]


def examples(n):
    return [TrainingExample(f"Question {i}?", gold=("gold",), id=f"e{i}") for i in range(n)]


def test_gold_parts_and_their_copies_are_no_negatives():
    (found,) = mine_negatives(examples(1), PASSAGES, Ranked(), model="m", count=3)
    assert found == ("p0", "p1", "p2")
    (found,) = mine_negatives(examples(1), PASSAGES, Ranked(), model="m", count=2, skip=2)
    assert found == ("p2", "p3")
    # Gold passages do not use up the depth.
    (found,) = mine_negatives(examples(1), PASSAGES, Ranked(), model="m", count=9, depth=4)
    assert found == ("p0", "p1", "p2")


def test_a_stopped_run_goes_on_where_it_was(tmp_path):
    path, many = tmp_path / "deep" / "negatives.jsonl", examples(600)
    with pytest.raises(KeyboardInterrupt):
        mine_negatives(many, PASSAGES, Ranked(stop_after=256), model="m", path=path)
    with path.open("ab") as stream:
        stream.write(b'["p0", "p')
    rest, seen = Ranked(), []
    found = mine_negatives(many, PASSAGES, rest, model="m", path=path, progress=lambda done, total: seen.append((done, total)))
    assert rest.asked == 600 - 256
    assert seen[0] == (256, 600)
    assert seen[-1] == (600, 600)
    assert found == mine_negatives(many, PASSAGES, Ranked(), model="m")
    again = Ranked(stop_after=0)
    assert mine_negatives(many, PASSAGES, again, model="m", path=path) == found


def test_negatives_of_something_else_are_not_used(tmp_path):
    path, two = tmp_path / "negatives.jsonl", examples(2)
    mine_negatives(two, PASSAGES, Ranked(), model="m", path=path)
    for changed in ({"model": "n"}, {"model": "m", "count": 3}):
        with pytest.raises(InputError, match="another model; name another file"):
            mine_negatives(two, PASSAGES, Ranked(), path=path, **changed)
    with pytest.raises(InputError, match="another model; name another file"):
        mine_negatives(examples(3), PASSAGES, Ranked(), model="m", path=path)
    head, *rows = path.read_text().splitlines()
    path.write_text("\n".join([head, '["p0"', *rows, ""]))
    with pytest.raises(InputError, match="line 2: damaged"):
        mine_negatives(two, PASSAGES, Ranked(), model="m", path=path)
    path.write_text("\n".join([head, json.dumps({"a": 1}), ""]))
    with pytest.raises(InputError, match="damaged; delete it"):
        mine_negatives(two, PASSAGES, Ranked(), model="m", path=path)


def test_what_cannot_be_used(tmp_path):
    with pytest.raises(InputError, match="at least 1"):
        mine_negatives(examples(1), PASSAGES, Ranked(), model="m", count=0)
    with pytest.raises(InputError, match="cannot be used to keep negatives"):
        mine_negatives(examples(1), PASSAGES, Ranked(), model="m", path=tmp_path)


def test_a_copy_of_a_gold_passage_is_masked():
    mask = gold_mask([["a"], ["c"]], ["a", "b", "c", "a"], {"a": "one", "b": "one", "c": "two"})
    assert mask.tolist() == [[True, True, False, True], [False, False, True, False]]


@given(st.lists(st.sets(st.sampled_from("abcdef"), min_size=1), max_size=5), st.lists(st.sampled_from("abcdef"), max_size=8))
def test_the_mask_is_membership(gold, sets):
    expected = np.array([[identity in wanted for identity in sets] for wanted in gold], dtype=bool).reshape(
        len(gold), len(sets)
    )
    assert np.array_equal(gold_mask(gold, sets), expected)
    # Texts that are all different change nothing.
    assert np.array_equal(gold_mask(gold, sets, {identity: identity for identity in "abcdef"}), expected)
