from contextlib import suppress

import bm25s
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.documents.split import pattern_text
from langgraph_convcoa.retrieval.hybrid.bm25 import BM25Index, turn_words
from langgraph_convcoa.text.words import content_words

PASSAGES = [
    Document("Sparsemax is a projection on the simplex.", metadata={"title": "Maps"}),
    Document("Hopfield networks store patterns. Hopfield wrote it in 1982."),
    Document("The simplex holds all distributions; a projection is a map."),
    Document("Nothing else of note."),
]
WORDS = ["hopfield", "network", "simplex", "map", "pattern", "entropy", "1982"]


def scaled(scores):
    return scores / scores.max() if scores.max() > 0 else scores


def stock(passages, query):
    index = bm25s.BM25()
    index.index([content_words(pattern_text(passage)) for passage in passages], show_progress=False)
    known = [word for word in content_words(query) if word in index.vocab_dict]
    return scaled(index.get_scores(known)) if known else np.zeros(len(passages))


@given(
    st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=9), min_size=1, max_size=12),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=5),
)
def test_scores_are_those_of_bm25s_over_the_best(passages, query):
    documents = [Document(" ".join(words)) for words in passages]
    found = BM25Index(documents).scores([" ".join(query)])
    np.testing.assert_allclose(found[0], stock(documents, " ".join(query)), atol=1e-5)
    assert found.dtype == np.float32


def test_titles_count_words_are_stemmed_and_stop_words_do_not_count():
    index = BM25Index(PASSAGES)
    scores = index.scores(["maps", "Who stored a pattern?", "What is it?", "unheard"])
    assert scores.shape == (4, 4)
    assert set(np.flatnonzero(scores[0])) == {0, 2}
    assert scores[1].tolist() == [0, 1, 0, 0]
    assert not scores[2:].any()


@given(st.integers(0, 4), st.data())
def test_additions_and_removals_leave_what_a_new_index_has(first, data):
    query = "Which projection on the simplex did Hopfield store?"
    index = BM25Index(PASSAGES[:first])
    index.scores([query])
    index.add(iter(PASSAGES[first:]))
    np.testing.assert_array_equal(index.scores([query]), BM25Index(PASSAGES).scores([query]))
    kept = sorted(data.draw(st.sets(st.integers(0, 3))))
    fresh = BM25Index(PASSAGES[i] for i in kept).scores([query])
    np.testing.assert_allclose(index.select(np.array(kept, dtype=np.int64)).scores([query]), fresh, atol=1e-6)


def test_select_keeps_the_order_that_it_is_given():
    index = BM25Index(PASSAGES).select(np.array([2, 1]))
    index.add([PASSAGES[0]])
    assert index.scores(["Hopfield", "sparsemax"]).tolist() == [[0, 1, 0], [0, 0, 1]]


def test_nothing_to_search_and_nothing_to_say():
    assert BM25Index().scores(["Hopfield"]).shape == (1, 0)
    assert BM25Index(PASSAGES).scores([]).shape == (0, 4)
    assert BM25Index([Document("the of and"), Document("Ω")]).scores(["the", ""]).tolist() == [[0, 0], [0, 0]]
    assert BM25Index(PASSAGES).select(np.array([], dtype=np.int64)).scores(["map"]).shape == (1, 0)


@pytest.mark.parametrize("passages", [PASSAGES, []])
def test_a_saved_index_is_the_same_and_can_grow(tmp_path, passages):
    path = tmp_path / "deep" / "lexical.safetensors"
    BM25Index(passages).save(path)
    loaded = BM25Index.load(path)
    assert len(loaded) == len(passages)
    queries = ["simplex map", "Hopfield 1982"]
    np.testing.assert_array_equal(loaded.scores(queries), BM25Index(passages).scores(queries))
    again = BM25Index.load(path)
    again.add([Document("Simplex algorithms of 1982.")])
    # The file that the others have mapped is replaced, not written over.
    again.save(path)
    np.testing.assert_array_equal(loaded.scores(queries), BM25Index(passages).scores(queries))
    grown = BM25Index([*passages, Document("Simplex algorithms of 1982.")])
    np.testing.assert_array_equal(BM25Index.load(path).scores(queries), grown.scores(queries))
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_every_damaged_byte_is_noticed(tmp_path):
    path = tmp_path / "lexical"
    BM25Index(PASSAGES).save(path)
    whole = path.read_bytes()
    expected = BM25Index(PASSAGES).scores(["Hopfield map"])
    header = 8 + int.from_bytes(whole[:8], "little")
    for position in range(0, len(whole), 7):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 4]) + whole[position + 1 :])
        with suppress(RetrievalError):
            found = BM25Index.load(path).scores(["Hopfield map"])
            # Only in the header can a change do no harm: white space, which nothing reads.
            assert position < header
            np.testing.assert_array_equal(found, expected)


def turned(index, question, turns):
    return index.scores([question], [turns])[0]


def test_a_follow_up_is_looked_for_by_the_words_of_its_turns():
    index = BM25Index([Document("The capital of France."), Document("The rivers of France."), Document("Rivers.")])
    turns = [("Tell me of France.", "")]
    assert index.scores(["And which rivers?"])[0].argmax() == 2
    assert turned(index, "And which rivers?", turns).argmax() == 1
    # Without turns it is no follow-up, whose own words are scored already.
    assert not turned(index, "Which rivers?", []).any()
    both = index.scores(["And which rivers?", "Which rivers?"], [turns, []])
    assert both.shape == (2, 3)
    assert (both[0] == turned(index, "And which rivers?", turns)).all()
    assert not both[1].any()


def test_newer_turns_count_more_and_long_answers_no_more_than_short_ones():
    older, newer = ("Who wrote of apples?", ""), ("Who wrote of pears?", "")
    words = turn_words([older, newer], [])
    assert words["pear"] > words["appl"]
    short, long = (turn_words([("", answer)], []) for answer in ("apples", " ".join(["apples", *map(str, range(1000, 1040))])))
    assert long["appl"] < short["appl"] / 5
    assert sum(long.values()) == pytest.approx(5 * short["appl"])


def test_the_more_a_question_says_the_less_its_turns_count():
    turns = [("Who wrote of apples?", "")]
    counts = [turn_words(turns, [str(number) for number in range(n)])["appl"] for n in (0, 2, 3, 10)]
    assert counts[0] == counts[1] > counts[2] > counts[3] > 0
    assert "appl" not in turn_words(turns, ["appl"])


def test_a_long_conversation_is_read_from_its_end_and_few_of_its_words_are_looked_for(monkeypatch):
    turns = [(f"What is number {number}?", f"It is {number}a and {number}b.") for number in range(10_000)]
    words = turn_words(turns, [])
    assert "9999" in words
    assert "9990" not in words
    looked = []
    monkeypatch.setattr(BM25Index, "_scores", lambda self, asked: looked.extend(asked))
    index = BM25Index([Document(" ".join(map(str, range(500))))])
    index.scores(["Why?"], [[(" ".join(map(str, range(n, n + 100))), "") for n in range(0, 500, 100)]])
    assert len(looked[0]) == 32
