"""Conversations made of single-turn questions: what is left out, and that it can be found again."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from langchain_core.documents import Document

from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.training.synthetic.conversations import kinds, make_conversations
from langgraph_convcoa.training.synthetic.ellipsis import (
    Topic,
    definite,
    dropped,
    entity_pronoun,
    other_question_word,
    other_year,
    plain,
    pronoun,
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
    examples = make_conversations(dataset(), 600, seed=1)
    assert examples == make_conversations(dataset(), 600, seed=1)
    assert examples != make_conversations(dataset(), 600, seed=2)
    found = Counter(dict(kinds(examples)))
    assert sum(found.values()) == 600
    assert all(found[kind] for kind in found), found
    assert 0.08 < found["switch"] / 600 < 0.25
    for example in examples:
        said = f"{example.question} {' '.join(part for turn in example.history for part in turn)}".lower()
        assert example.history
        assert example.question.strip()
        topics = [name for name in ("Ada Lovelace", "Oslo", "Bees") if name.lower() in example.target.lower()]
        if example.kind == "switch":
            assert example.question.lower().rstrip("?. ") == example.target.lower().rstrip("?. ")
        else:
            assert topics, example
            # Part of the name is enough where it is a person's.
            assert any(name.split()[-1].lower() in said or name.split()[0].lower() in said for name in topics), example


def test_data_that_nothing_can_be_made_of() -> None:
    data = dataset()
    untitled = tuple(Document(id=passage.id, page_content=passage.page_content) for passage in data.corpus)
    with pytest.raises(InputError, match="titled article"):
        make_conversations(Dataset("bare", data.queries, untitled), 3)
    with pytest.raises(InputError, match="at least 1"):
        make_conversations(data, 0)
