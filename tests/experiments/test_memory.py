"""The measurements of the conversation memory, on small dialogs with a fast encoder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document

from experiments.memory import measure as module
from experiments.memory.__main__ import main
from langgraph_convcoa.datasets.queries import Query
from tests.data import write_dataset
from tests.fake_encoder import WordEncoder

WORDS = ["ants", "bees", "crabs", "ducks", "eels", "foxes", "goats", "hens", "ibises", "jays"]


def write(folder: Path, count: int = 60) -> Path:
    """Dialogs of four turns about one animal each; the later ones lean on the first and have a rewrite."""
    queries, corpus = [], []
    for n in range(count):
        animal = f"{WORDS[n % 10]} of Island {chr(65 + n // 10)}{WORDS[n % 7]}"
        turns = [
            (f"Where do the {animal} live?", f"In house {n}.", ""),
            ("What do they eat?", f"Grass number {n}.", f"What do the {animal} eat?"),
            (f"When were they counted in {1900 + n}?", "In May.", f"When were the {animal} counted in {1900 + n}?"),
            ("Who counted?", f"Dr. {n}.", f"Who counted the {animal}?"),
        ]
        text = " ".join(f"{animal}: {answer}" for _, answer, _ in turns)
        corpus.append(Document(text, id=f"p{n}", metadata={"title": animal}))
        for place, (question, answer, rewrite) in enumerate(turns):
            history = tuple(turn[:2] for turn in turns[:place])
            queries.append(Query(f"q{n}-{place}", question, history, (f"p{n}",), rewrite, answer, conversation=f"c{n}"))
    return write_dataset(folder, queries, corpus)


@pytest.fixture(autouse=True)
def encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "as_encoder", lambda _encoder: WordEncoder())


def test_the_command_measures_every_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("CONVCOA_CACHE_DIR", str(tmp_path / "cache"))
    arguments = [str(write(tmp_path / "data")), "--rounds", "12", "--json"]
    monkeypatch.setattr("sys.argv", ["memory", *arguments])
    main()
    found = json.loads(capsys.readouterr().out)
    assert [cost["round"] for cost in found["costs"]["rounds"]] == list(range(1, 13))
    assert (
        {row["part"] for row in found["mentions"]} == {row["part"] for row in found["recall_summary"]} == {"tuning", "report"}
    )
