"""Conversations made of single-turn questions: what is left out, and that it can be found again."""

from __future__ import annotations

import random

import pytest
from langchain_core.documents import Document

from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.training.data import TrainingData, TrainingExample
from langgraph_convcoa.training.synthetic import (
    Topic,
    definite,
    dropped,
    entity_pronoun,
    other_question_word,
    other_year,
    plain,
    pronoun,
    synthetic_conversations,
    with_synthetic,
)

ADA = Topic("Ada Lovelace", ("Ada Lovelace", "Lovelace", "Ada"), "she", "mathematician")
CHOPIN = Topic.of(
    "Fr%C3%A9d%C3%A9ric Chopin", ["Frédéric Chopin was a Polish composer. He wrote for the piano, and his waltzes are known."]
)


def dataset() -> Dataset:
    articles = {
        "Ada Lovelace": "Ada Lovelace was an English mathematician. She wrote a program in 1843, and her notes were read.",
        "Oslo": "Oslo is a city of Norway. It was founded in 1049, and its harbour is large.",
        "Bees": "Bees are insects. They live in hives, and they are known for their honey.",
    }
    corpus = tuple(Document(id=name, page_content=text, metadata={"title": name}) for name, text in articles.items())
    asked = (
        "When was {} in the news?",
        "Why is {} known?",
        "What is the size of {}?",
        "Who has written about {} in 1990?",
        "How?",
    )
    queries = [
        Query(f"{name}-{number}", question.format(name), gold=(name,), answer="notes")
        for name in articles
        for number, question in enumerate(asked)
    ]
    return Dataset("made", tuple(queries), corpus)


def test_a_topic_from_its_article() -> None:
    assert CHOPIN.name == "Frédéric Chopin"
    assert CHOPIN.subject == "he"
    assert CHOPIN.kind == "composer"
    assert CHOPIN.named("Where did Chopin live?") is not None
    assert CHOPIN.named("Where did Frederic Chopin live?") is not None
    assert CHOPIN.named("Where is the Chopinesque hall?") is None
    assert Topic.of("Spectre (2015 film)", ["It is a film."]).name == "Spectre"
    assert plain("Frédéric") == "Frederic"


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Where did Ada Lovelace live?", "Where did she live?"),
        ("What did they say about Ada?", "What did they say about her?"),
        ("What was Ada Lovelace's work?", "What was her work?"),
        ("Ada was born when?", "Her was born when?"),
        ("Where is Oslo?", None),
    ],
)
def test_pronouns(question: str, expected: str | None) -> None:
    found = pronoun(question, ADA)
    assert found == expected or (question.startswith("Ada ") and found in ("Her was born when?", "She was born when?"))


def test_other_ways_to_leave_out() -> None:
    assert dropped("What was the first program of Ada Lovelace?", ADA) == "What was the first program?"
    assert dropped("Where was Ada born?", ADA) is None
    assert definite("Where was Ada born?", ADA) == "Where was the mathematician born?"
    assert definite("Where was Ada born?", Topic("Ada", ("Ada",), "she", "")) is None
    rng = random.Random(0)
    assert entity_pronoun("Who met Charles Babbage there?", "She knew Charles Babbage.", rng) in {
        f"Who met {word} there?" for word in ("it", "that", "this", "they")
    }
    assert entity_pronoun("Who met Charles Babbage there?", "She knew many.", rng) is None
    short, full = other_question_word("When did she leave Paris?", rng) or ("", "")
    assert full.split(maxsplit=1)[1] == "did she leave Paris?"
    assert full.split()[0].lower() in short.lower()
    assert full.split()[0] != "When"
    assert other_question_word("What did she leave?", rng) is None
    short, full = other_year("Who lived there in 1990?", rng) or ("", "")
    year = full.removeprefix("Who lived there in ").removesuffix("?")
    assert year != "1990"
    assert year in short
    assert other_year("Who lived there?", rng) is None


def test_conversations_say_what_their_questions_leave_out() -> None:
    examples = synthetic_conversations(dataset(), 600, seed=1)
    assert examples == synthetic_conversations(dataset(), 600, seed=1)
    assert examples != synthetic_conversations(dataset(), 600, seed=2)
    assert len(examples) == 600
    alone = 0
    for example in examples:
        said = f"{example.question} {' '.join(part for turn in example.history for part in turn)}".lower()
        assert example.history
        assert example.question.strip()
        topics = [name for name in ("Ada Lovelace", "Oslo", "Bees") if name.lower() in example.rewrite.lower()]
        if example.question.lower().rstrip("?. ") == example.rewrite.lower().rstrip("?. "):
            alone += 1
        else:
            assert topics, example
            # Part of the name is enough where it is a person's.
            assert any(name.split()[-1].lower() in said or name.split()[0].lower() in said for name in topics), example
    assert 0.15 < alone / 600 < 0.4


def test_data_that_nothing_can_be_made_of() -> None:
    data = dataset()
    untitled = tuple(Document(id=passage.id, page_content=passage.page_content) for passage in data.corpus)
    with pytest.raises(InputError, match="titled article"):
        synthetic_conversations(Dataset("bare", data.queries, untitled), 3)
    with pytest.raises(InputError, match="at least 1"):
        synthetic_conversations(data, 0)


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
    mixed = with_synthetic(real(), [cities()], synthetic=12, single=7)
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
    assert with_synthetic(real(), [cities()], synthetic=12, single=7) == mixed
    assert with_synthetic(real(), [cities()], synthetic=12, single=7, seed=1) != mixed


def test_without_single_questions_the_data_stays_as_it_is() -> None:
    assert with_synthetic(real(), [], synthetic=12, single=7) == real()
    assert with_synthetic(real(), [cities()], synthetic=0, single=0) == real()


def test_an_id_of_two_texts_is_refused_rather_than_trained_on_as_gold() -> None:
    passages = (*real().passages, Document("Not a city at all.", id="Bern1"))
    with pytest.raises(InputError, match="'Bern1' stands for two texts"):
        with_synthetic(TrainingData(real().examples, passages), [cities()], synthetic=60, single=60)
    same = (*real().passages, Document("Bern1 is a city.", id="Bern1"))
    assert with_synthetic(TrainingData(real().examples, same), [cities()], synthetic=60, single=60).passages
