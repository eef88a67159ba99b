"""Questions about names that are in no document, made and asked on a small corpus."""

import gzip
import json
import random
from pathlib import Path

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding

from experiments.unknown_names.measure import evaluate_unknown_names, rename, unknown_name
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.encoders.choice import as_encoder

CORPUS = ["Oslo is the capital of Norway. Harald Hardrada founded Oslo.", "Bern is the capital of Switzerland."]
QUERIES = [
    Query("1", "When was Oslo founded?", history=(("Where is it?", "In Norway."),)),
    Query("2", "Did Harald Hardrada found it?"),
    Query("3", "Did Harald Hardrada build it?"),
    Query("4", "Who founded it?"),
    Query("5", "Norway has which capital?"),
]


def test_a_name_inside_a_question_gives_way_to_one_of_no_document() -> None:
    made = rename(QUERIES, CORPUS, 10, seed=0)
    assert sorted(one.query.id for one in made) == ["1", "2", "3"]
    for one in made:
        original = next(query for query in QUERIES if query.id == one.query.id)
        assert one.query.question == original.question.replace(one.instead_of, one.name)
        assert one.query.history == original.history
        assert one.name.lower() not in " ".join(CORPUS).lower()
    assert {one.instead_of for one in made} <= {"Oslo", "Harald Hardrada", "Harald", "Hardrada"}


def test_of_a_name_of_two_words_sometimes_one_gives_way() -> None:
    given = {one.instead_of for seed in range(8) for one in rename(QUERIES[1:3], CORPUS, 10, seed)}
    assert "Harald Hardrada" in given
    assert given & {"Harald", "Hardrada"}


def test_the_draw_is_repeatable() -> None:
    assert rename(QUERIES, CORPUS, 2, seed=3) == rename(QUERIES, CORPUS, 2, seed=3)
    assert len(rename(QUERIES, CORPUS, 2, seed=3)) == 2


def test_a_name_that_is_known_is_not_given() -> None:
    names = {unknown_name(random.Random(n), ()).lower() for n in range(50)}
    known = {unknown_name(random.Random(7), ()).lower()}
    assert unknown_name(random.Random(7), known).lower() not in known
    assert len(names) > 20


def test_questions_without_names_are_told() -> None:
    with pytest.raises(InputError, match="No question holds a name"):
        rename(QUERIES[3:], CORPUS, 5, seed=0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    passages = [{"id": str(n), "title": "", "text": text} for n, text in enumerate(CORPUS)]
    questions = [{"id": query.id, "question": query.question, "split": "dev"} for query in QUERIES]
    for name, rows in (("corpus", passages), ("queries", questions)):
        with gzip.open(tmp_path / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return tmp_path


def test_a_run_of_the_graph(folder: Path) -> None:
    encoder = as_encoder(DeterministicFakeEmbedding(size=16))
    report = evaluate_unknown_names(folder, k=2, encoder=encoder, progress=False)
    assert (report.questions, report.passages) == (3, 2)
    assert (report.refused, report.refused_lower) == (1.0, 1.0)
    assert report.nearest > 0
    assert report.answered == ()
    assert "100.0%" in report.tables()[0].markdown()


@pytest.mark.parametrize("bad", [{"sample": 0}, {"k": 0}, {"split": "test"}])
def test_bad_settings_are_told(folder: Path, bad: dict[str, int]) -> None:
    with pytest.raises(InputError):
        evaluate_unknown_names(folder, progress=False, **bad)  # type: ignore[arg-type]
