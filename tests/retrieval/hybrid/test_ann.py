import numpy as np
import pytest

pytest.importorskip("usearch")

from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.hybrid.ann import GONE, ANNIndex, ApproximateSettings, search_candidates
from langgraph_convcoa.retrieval.scoring.patterns import Patterns, encode_patterns
from langgraph_convcoa.retrieval.scoring.topk import search

DIMENSION = 24


def made(n, seed=0, dtype="float32"):
    """Memory sets of one to six windows about passage vectors, and query states near some of them."""
    random = np.random.default_rng(seed)
    sizes = random.integers(2, 8, n)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    centres = unit(random.standard_normal((n, DIMENSION)))
    rows = unit(np.repeat(centres, sizes, axis=0) + 0.15 * random.standard_normal((offsets[-1], DIMENSION)))
    values, scales = encode_patterns(rows.astype(np.float32), dtype)
    states = unit(centres[:20] + 0.1 * random.standard_normal((min(n, 20), DIMENSION))).astype(np.float32)
    return Patterns(values=values, scales=scales, offsets=offsets, dtype=dtype), states


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def stage_of(patterns, over="windows", **settings):
    stage = ANNIndex(patterns.d, ApproximateSettings(over=over), **settings)
    stage.add(patterns)
    return stage


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("over", ["windows", "passages"])
def test_nearly_all_of_the_best_are_found_and_their_scores_are_exact(over, dtype):
    patterns, states = made(2000, dtype=dtype)
    stage = stage_of(patterns, over=over)
    assert len(stage) == (len(patterns.values) - 2000 if over == "windows" else 2000)
    exact = search(patterns, states, k=10)
    found = search_candidates(patterns, states, stage.candidates, k=10, count=100)
    shared = [len(np.intersect1d(a.indices, b.indices)) for a, b in zip(exact, found, strict=True)]
    assert np.mean(shared) >= 9.8
    for a, b in zip(exact, found, strict=True):
        assert not b.certified
        _, left, right = np.intersect1d(a.indices, b.indices, return_indices=True)
        np.testing.assert_allclose(a.scores[left], b.scores[right], rtol=1e-5)
        assert (np.diff(b.scores) <= 0).all()


def test_windows_see_what_passages_are_blind_to():
    # Passage 0 as a whole says nothing of the state, its one window all; 1 to 40 are near it as wholes, their windows not.
    random = np.random.default_rng(0)
    x = np.eye(DIMENSION, dtype=np.float32)[0]
    away = unit(random.standard_normal((40, DIMENSION)) * (np.arange(DIMENSION) > 0))
    near = unit(away + 0.6 * x)
    rows = np.concatenate([[np.eye(DIMENSION)[1], x], np.stack([near, away], axis=1).reshape(-1, DIMENSION)])
    values, scales = encode_patterns(rows.astype(np.float32), "float32")
    patterns = Patterns(values=values, scales=scales, offsets=np.arange(0, 84, 2))
    assert stage_of(patterns).candidates(x[None], 1)[0].tolist() == [0]
    assert 0 not in stage_of(patterns, over="passages").candidates(x[None], 20)[0]


def test_candidates_are_distinct_and_as_many_as_asked():
    patterns, states = made(300)
    for found in stage_of(patterns).candidates(states, 7):
        assert len(found) == len(set(found.tolist())) <= 7
    # One thread: vectors that several link at once may stay out of reach of a search, which then names fewer sets.
    assert len(stage_of(patterns, threads=1).candidates(states[:1], 10_000)[0]) == 300


def test_what_was_added_later_is_found_and_what_was_removed_is_not():
    patterns, states = made(200)
    # One thread, as above.
    stage = ANNIndex(DIMENSION, threads=1)
    stage.add(patterns, np.arange(150), np.arange(1000, 1150))
    stage.add(patterns, np.arange(150, 200), np.arange(1150, 1200))
    assert stage.keys.tolist() == list(range(1000, 1200))
    assert all(set(found.tolist()) == set(range(200)) for found in stage.candidates(states, 2000))
    stage.remove(np.array([3, 150]))
    assert np.flatnonzero(stage.keys == GONE).tolist() == [3, 150]
    assert all(not {3, 150} & set(found.tolist()) for found in stage.candidates(states, 2000))
    stage.add(patterns, np.array([3]), np.array([1003]))
    assert 200 in stage.candidates(states, 2000)[3]
    assert stage.keys[200] == 1003


def test_a_filter_gets_its_k_and_is_certain_when_little_is_left():
    patterns, states = made(2000)
    stage = stage_of(patterns)
    allowed = np.zeros(2000, dtype=np.bool_)
    allowed[::10] = True
    few = search_candidates(patterns, states, stage.candidates, k=10, count=30, allowed=allowed)
    exact = search(patterns, states, k=10, allowed=allowed)
    shared = [len(np.intersect1d(a.indices, b.indices)) for a, b in zip(exact, few, strict=True)]
    assert all(len(ranking.indices) == 10 and allowed[ranking.indices].all() for ranking in few)
    assert np.mean(shared) > 5
    certain = search_candidates(patterns, states, stage.candidates, k=10, count=200, allowed=allowed)
    for a, b in zip(exact, certain, strict=True):
        assert b.certified
        np.testing.assert_array_equal(a.indices, b.indices)
    none = search_candidates(patterns, states, stage.candidates, k=10, allowed=np.zeros(2000, dtype=np.bool_))
    assert [len(ranking.indices) for ranking in none] == [0] * len(states)


def test_the_extra_term_names_candidates_of_its_own():
    patterns, states = made(1000)
    extra = np.zeros((len(states), 1000), dtype=np.float32)
    extra[np.arange(len(states)), 900] = 3.0
    found = search_candidates(patterns, states, stage_of(patterns).candidates, k=5, count=20, extra=extra)
    exact = search(patterns, states, k=5, extra=extra)
    assert [ranking.indices[0] for ranking in found] == [900] * len(states)
    for a, b in zip(exact, found, strict=True):
        assert b.scores[0] == pytest.approx(a.scores[0], rel=1e-5)
    forbidden = np.ones(1000, dtype=np.bool_)
    forbidden[900] = False
    found = search_candidates(patterns, states, stage_of(patterns).candidates, k=5, count=20, extra=extra, allowed=forbidden)
    assert all(900 not in ranking.indices for ranking in found)


def test_a_saved_stage_is_the_same_and_can_be_changed(tmp_path):
    patterns, states = made(300)
    path = tmp_path / "stage"
    stage = stage_of(patterns, passage_weight=0.5)
    stage.save(path)
    loaded = ANNIndex.load(path)
    assert (loaded.dimension, loaded.settings.over, loaded.passage_weight, len(loaded)) == (
        DIMENSION,
        "windows",
        0.5,
        len(stage),
    )
    for a, b in zip(stage.candidates(states, 9), loaded.candidates(states, 9), strict=True):
        np.testing.assert_array_equal(a, b)
    loaded.remove(np.array([0]))
    loaded.save(path)
    assert 0 not in ANNIndex.load(path).candidates(states, 3000)[0]
    empty = ANNIndex(4)
    empty.save(path)
    assert ANNIndex.load(path).candidates(np.ones((2, 4), dtype=np.float32), 3)[1].tolist() == []


def test_a_damaged_file_is_noticed_before_the_graph_is_read(tmp_path):
    path = tmp_path / "stage"
    stage_of(made(50)[0]).save(path)
    content = path.read_bytes()
    path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    for use in (lambda stage: stage.candidates(made(50)[1], 3), lambda stage: stage.remove(np.array([1]))):
        with pytest.raises(RetrievalError, match="checksum"):
            use(ANNIndex.load(path))


def test_what_does_not_fit():
    patterns, states = made(20)
    stage = stage_of(patterns)
    with pytest.raises(RetrievalError, match="length 24, the ANN index 8"):
        ANNIndex(8).add(patterns)
    with pytest.raises(RetrievalError, match="query vectors have shape"):
        stage.candidates(states[:, :5], 3)
    assert stage.candidates(states[:0], 3) == []


def test_without_usearch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "usearch.index", None)
    with pytest.raises(RetrievalError, match=r"pip install .*\[approximate\]"):
        ANNIndex(8)
