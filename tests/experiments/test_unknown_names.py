"""Questions about names that are in no document, made and asked on a small corpus."""

from dataclasses import replace
from pathlib import Path

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from experiments.unknown_names.measure import evaluate_unknown_names, rename
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.retrieval.encoders.embeddings import as_encoder
from tests.data import write_dataset

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
    assert made == rename(QUERIES, CORPUS, 10, seed=0)
    assert sorted(one.query.id for one in made) == ["1", "2", "3"]
    for one in made:
        original = next(query for query in QUERIES if query.id == one.query.id)
        assert one.query.question == original.question.replace(one.instead_of, one.name)
        assert one.query.history == original.history
        assert one.name.lower() not in " ".join(CORPUS).lower()
    assert {one.instead_of for one in made} <= {"Oslo", "Harald Hardrada", "Harald", "Hardrada"}


def test_a_run_of_the_graph(tmp_path: Path) -> None:
    passages = [Document(text, id=str(n)) for n, text in enumerate(CORPUS)]
    folder = write_dataset(tmp_path, [replace(query, split="dev") for query in QUERIES], passages, ".jsonl.gz")
    encoder = as_encoder(DeterministicFakeEmbedding(size=16))
    report = evaluate_unknown_names(folder, k=2, encoder=encoder, progress=False)
    assert (report.questions, report.passages) == (3, 2)
    assert (report.refused, report.refused_lower) == (1.0, 1.0)
    assert report.nearest > 0
    assert report.answered == ()
    assert "100.0%" in report.tables()[0].markdown()
