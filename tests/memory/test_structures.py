"""Clusters and chains: the parts of DH-RAG that know vectors only."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from langgraph_convcoa.memory.dynamic_history import ClusterTree, ThoughtChains
from langgraph_convcoa.memory.vectors import Vectors


def unit_rows(n: int, d: int, seed: int) -> Vectors:
    rows = np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def near(topic: int, noise: Vectors, d: int = 8) -> Vectors:
    vector = np.eye(d, dtype=np.float32)[topic] + 0.2 * noise
    return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)


@given(st.integers(1, 60), st.integers(0, 1000))
def test_every_query_is_in_one_category_and_in_one_of_its_summaries(n: int, seed: int) -> None:
    tree, rows = ClusterTree(most=5), unit_rows(n, 8, seed)
    for key, row in enumerate(rows):
        tree.add(key, row)
    assert sorted(key for category in tree.categories for key in category.members) == list(range(n))
    for category in tree.categories:
        assert sorted(key for summary in category.summaries for key in summary.members) == sorted(category.members)
        assert np.allclose(category.total, rows[category.members].sum(axis=0), atol=1e-4)
    assert len(tree.categories) <= 5, "what matching costs is bounded"
    for key in range(n):
        tree.remove(key, rows[key])
    assert tree.categories == []


def test_queries_of_one_topic_share_a_category_and_matching_finds_them() -> None:
    rows = unit_rows(30, 8, 3)
    tree = ClusterTree()
    for key in range(30):
        tree.add(key, near(key % 3, rows[key]))
    assert sorted(sorted(category.members) for category in tree.categories) == [list(range(t, 30, 3)) for t in range(3)]
    assert sorted(tree.match(np.eye(8, dtype=np.float32)[1], categories=1, summaries=99)) == list(range(1, 30, 3))


def test_matching_follows_the_best_summary_of_the_best_category() -> None:
    d = np.eye(3, dtype=np.float32)
    tree = ClusterTree(category_similarity=0.1, summary_similarity=0.9)
    tree.add(1, d[0])
    tree.add(2, np.array([0.8, 0.6, 0], dtype=np.float32))
    assert len(tree.categories) == 1
    assert len(tree.categories[0].summaries) == 2
    assert tree.match(d[0], categories=1, summaries=1) == [1]


def test_a_chain_is_taken_up_again_after_a_digression() -> None:
    rows = unit_rows(9, 8, 1)
    chains = ThoughtChains()
    for key, topic in enumerate([0, 0, 1, 1, 2, 0, 1, 0, 2]):
        chains.add(key, near(topic, rows[key]))
    assert sorted(chain.members for chain in chains.chains) == [[0, 1, 5, 7], [2, 3, 6], [4, 8]]
    best = chains.best(np.eye(8, dtype=np.float32)[1])
    assert best is not None
    assert best.members == [2, 3, 6]
    assert chains.of(5) == [0, 1, 5, 7]


def test_the_present_topic_has_inertia() -> None:
    d = np.eye(2, dtype=np.float32)
    between = np.array([0.36, 0.93], dtype=np.float32)
    for inertia, expected in ((0.1, [[0, 1]]), (0.0, [[0], [1]])):
        chains = ThoughtChains(similarity=0.4, inertia=inertia)
        chains.add(0, d[0])
        chains.add(1, between)
        assert [chain.members for chain in chains.chains] == expected


@given(st.integers(1, 40), st.integers(0, 1000))
def test_chains_are_bounded_and_forget_what_is_removed(n: int, seed: int) -> None:
    chains, rows = ThoughtChains(most=4), unit_rows(n, 8, seed)
    for key, row in enumerate(rows):
        chains.add(key, row)
    assert len(chains.chains) <= 4
    for key in range(n):
        chains.remove(key, rows[key])
    assert chains.chains == []
    assert chains.best(rows[0]) is None
