"""What a head is trained on beside real conversations."""

from __future__ import annotations

import pytest
from langchain_core.documents import Document

from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.training.data import TrainingData, TrainingExample
from langgraph_convcoa.training.head.mixture import with_single_turn

CITIES = tuple(f"{name}{number}" for name in ("Bern", "Oslo", "Rome", "Kiel") for number in range(5))


def cities() -> Dataset:
    corpus = tuple(Document(f"{city} is a city.", id=city, metadata={"title": city}) for city in CITIES)
    queries = tuple(
        Query(f"{city}{i}", f"Who built {city} {i}?", gold=(city,), answer="men") for city in CITIES for i in range(3)
    )
    return Dataset("cities", queries, corpus)


def real() -> TrainingData:
    return TrainingData((TrainingExample("When?", (("Who?", "Ada"),), ("a",)),), (Document("Ada, 1843", id="a"),))


def test_made_and_single_questions_join_with_the_passages_that_answer_them() -> None:
    mixed = with_single_turn(real(), [cities()], made=12, single=7)
    assert mixed.sources == {"": 1, "made of cities": 12, "cities": 7}
    assert mixed.examples[0] == real().examples[0]
    ids = {str(passage.id) for passage in mixed.passages}
    assert all(set(example.gold) <= ids for example in mixed.examples)
    assert ids == {"a"} | {identity for example in mixed.examples[1:] for identity in example.gold}
    singles = [example for example in mixed.examples if example.source == "cities"]
    assert all(example.rewrite == example.question and not example.history for example in singles)
    assert len({example.question for example in singles}) == 7
    made = [example for example in mixed.examples if example.source == "made of cities"]
    assert all(example.history and example.rewrite for example in made)
    assert with_single_turn(real(), [cities()], made=12, single=7) == mixed
    assert with_single_turn(real(), [cities()], made=12, single=7, seed=1) != mixed


def test_without_single_questions_the_data_stays_as_it_is() -> None:
    assert with_single_turn(real(), [], made=12, single=7) == real()
    assert with_single_turn(real(), [cities()], made=0, single=0) == real()


def test_an_id_of_two_texts_is_refused_rather_than_trained_on_as_gold() -> None:
    passages = (*real().passages, Document("Not a city at all.", id="Bern1"))
    with pytest.raises(InputError, match="'Bern1' stands for two texts"):
        with_single_turn(TrainingData(real().examples, passages), [cities()], made=60, single=60)
    same = (*real().passages, Document("Bern1 is a city.", id="Bern1"))
    assert with_single_turn(TrainingData(real().examples, same), [cities()], made=60, single=60).passages
