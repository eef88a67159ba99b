from __future__ import annotations

import numpy as np

from langgraph_convcoa.memory.conversation_memory import DynamicHistory, TextVectors, Triple

VECTORS = TextVectors()
TOPICS = ["ants", "bees", "crabs", "ducks", "eels", "foxes"]


def history(*turns: tuple[str, str], **settings: float) -> DynamicHistory:
    found = DynamicHistory(**settings)  # type: ignore[arg-type]
    for key, (question, answer) in enumerate(turns, 1):
        triple = Triple(key, question, answer)
        found.update(triple, VECTORS([triple.text])[0])
    return found


def keys(found: DynamicHistory, question: str, k: int = 5) -> list[int]:
    return [recalled.triple.key for recalled in found.retrieve(question, VECTORS([question])[0], k)]


def test_an_early_triple_is_found_among_many() -> None:
    turns = [(f"Where do the {topic} number {n} live?", f"In house {n}.") for n in range(10) for topic in TOPICS]
    turns[3] = ("Who introduced sparsemax?", "Martins and Astudillo.")
    found = history(*turns)
    assert keys(found, "Which people introduced sparsemax?", 1) == [4]


def test_a_triple_that_leans_on_the_one_before_is_found_by_its_words() -> None:
    turns = [("What is the total revenue?", "Which year?"), ("2019", "$5 million")]
    fillers = [(f"Where do the {topic} live?", "In a wood.") for topic in TOPICS]
    assert keys(history(*fillers, *turns, *fillers), "What is the total revenue in 2019?")[0] == len(fillers) + 2


def test_weights_are_relevance_and_recency_as_in_equation_13() -> None:
    turns = [("ants?", "small"), ("bees?", "busy"), ("ants?", "small")]
    found = history(*turns, alpha=0.7)
    vector = VECTORS(["ants?"])[0]
    recency = 0.5 ** (np.array([2, 1, 0]) / 20)
    assert np.allclose(found.weights("ants?", vector), 0.7 * found.relevances("ants?", vector) + 0.3 * recency, atol=1e-6)
    only_recency = history(*turns, alpha=0.0)
    assert keys(only_recency, "bees", 3) == [3, 2, 1]


def test_beyond_the_capacity_the_least_weight_goes_and_the_newest_stays() -> None:
    found = history(*[(f"Where do the {topic} live?", "") for topic in TOPICS], capacity=3)
    assert len(found.triples) == 3
    assert found.triples[-1].key == len(TOPICS)
    assert keys(found, "What lives where?", 9) == sorted((triple.key for triple in found.triples), reverse=True)
    kept = history(("sparsemax definition?", "a projection"), *[(f"{topic}?", "") for topic in TOPICS], capacity=3, alpha=1.0)
    kept.update(Triple(9, "sparsemax definition again?", ""), VECTORS(["sparsemax definition again?"])[0])
    assert len(kept.triples) == 3


def test_nothing_is_found_in_an_empty_history() -> None:
    assert DynamicHistory().retrieve("ants", VECTORS(["ants"])[0]) == []
    assert history(("ants?", "")).retrieve("ants", VECTORS(["ants"])[0], 0) == []
