"""The measure of printed answers, by hand-made answers and by a small run of the real graph."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding

from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.extractive_qa import Printed, evaluate_qa, sample_questions, score_answers
from langgraph_convcoa.retrieval.encoders.choice import as_encoder
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever


def test_scores_of_known_answers() -> None:
    rows = [Query("1", "?", gold=("a",), answer="Oslo"), Query("2", "?", gold=("b",), answer="the Rhine")]
    printed = [Printed("It is Oslo [1].", ["a#2", "c"]), Printed("A Rhine boat went by [1].", ["c"])]
    scores = score_answers(rows, printed)
    assert scores["cover"] == 1.0
    assert scores["cover_strict"] == 0.5
    assert scores["hit_rate"] == 0.5
    assert scores["refused"] == 0.0
    low, high = scores["cover_interval"]
    assert low == high == 1.0
    assert (scores["words_mean"], scores["words_max"]) == (4.0, 5)


def test_the_nearest_passage_of_a_refusal_covers_nothing() -> None:
    refusal = "I found nothing about this in the documents. The nearest passage is “Oslo is large” [1]."
    scores = score_answers([Query("1", "?", gold=("a",), answer="Oslo")], [Printed(refusal, ["a"])])
    assert (scores["cover"], scores["cover_strict"], scores["refused"]) == (0.0, 0.0, 1.0)


def test_the_draw_is_random_and_repeatable() -> None:
    queries = [Query(str(n), "?", answer="" if n % 2 else "x") for n in range(100)]
    first, second, other = (sample_questions(queries, 20, seed) for seed in (0, 0, 1))
    assert first == second != other
    assert all(query.answer for query in first)
    assert len(sample_questions(queries, 1_000, 0)) == 50
    with pytest.raises(InputError, match="no question with an answer"):
        sample_questions(queries[1:2], 5, 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    passages = [
        {"id": "oslo", "title": "Oslo", "text": "Oslo is the capital of Norway. It was founded in 1040 by Harald Hardrada."},
        {
            "id": "bern",
            "title": "Bern",
            "text": "Bern is the capital of Switzerland. The old town lies in a loop of the Aare.",
        },
    ]
    questions = [
        {"id": "1", "question": "When was Oslo founded?", "answer": "1040", "gold": ["oslo"], "split": "dev"},
        {"id": "2", "question": "What is the capital of Switzerland?", "answer": "Bern", "gold": ["bern"], "split": "dev"},
        {"id": "3", "question": "Who baked the first pizza?", "answer": "Raffaele", "gold": [], "split": "dev"},
        {"id": "4", "question": "Unused?", "answer": "x", "gold": [], "split": "train"},
    ]
    for name, rows in (("corpus", passages), ("queries", questions)):
        with gzip.open(tmp_path / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return tmp_path


def test_a_run_of_the_graph(folder: Path) -> None:
    encoder = as_encoder(DeterministicFakeEmbedding(size=16))
    report = evaluate_qa(folder, k=2, encoder=encoder, progress=False)
    assert report.questions == 3
    assert report.passages == 2
    assert report.cover == pytest.approx(2 / 3)
    assert report.hit_rate == pytest.approx(2 / 3)
    assert report.refused == pytest.approx(1 / 3)
    assert report.words_max <= 60
    assert json.loads(json.dumps(report.to_dict()))["cover_interval"] == list(report.cover_interval)
    assert "66.7%" in report.tables()[0].markdown()


def test_a_question_is_asked_after_the_turns_before_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [json.loads(line) for line in gzip.decompress((folder / "queries.jsonl.gz").read_bytes()).splitlines()]
    rows[0] |= {"question": "When was it founded?", "history": [["What is the capital of Norway?", "Oslo."]]}
    with gzip.open(folder / "queries.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    seen: dict[str, Any] = {}
    asked = HopfieldRetriever._asked

    def watched(self: HopfieldRetriever, queries: Any, histories: Any, *options: Any) -> Any:
        seen.update(zip(queries, histories, strict=True))
        return asked(self, queries, histories, *options)

    monkeypatch.setattr(HopfieldRetriever, "_asked", watched)
    evaluate_qa(folder, k=2, encoder=as_encoder(DeterministicFakeEmbedding(size=16)), progress=False)
    assert [tuple(turn) for turn in seen["When was it founded?"]] == [("What is the capital of Norway?", "Oslo.")]
    assert not seen["What is the capital of Switzerland?"]


@pytest.mark.parametrize("bad", [{"sample": 0}, {"k": 0}, {"split": "test"}])
def test_bad_settings_are_told(folder: Path, bad: dict[str, int]) -> None:
    with pytest.raises(InputError):
        evaluate_qa(folder, progress=False, **bad)  # type: ignore[arg-type]


def test_the_interval_is_over_conversations() -> None:
    rows = [Query(str(n), "?", gold=("a",), answer="Oslo", conversation=f"c{n % 4}") for n in range(40)]
    printed = [Printed("Oslo" if n % 4 < 2 else "Bern", ["a"]) for n in range(40)]
    low, high = score_answers(rows, printed)["cover_interval"]
    # Four conversations, two of them right: all four may be drawn from one half.
    assert (low, high) == (0.0, 1.0)
