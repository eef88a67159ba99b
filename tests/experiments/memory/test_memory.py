"""The measurements of the conversation memory, on small dialogs with a fast encoder."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from experiments.memory import measure as module
from experiments.memory.__main__ import main
from experiments.memory.costs import RoundCost, evaluate_costs, ratio
from experiments.memory.dialogs import conversations, dialogs
from experiments.memory.measure import evaluate_memory, evaluate_mentions
from experiments.memory.recall import make_pairs, rephrase
from langgraph_convcoa.datasets.queries import Dataset
from langgraph_convcoa.datasets.read import load_dataset
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.memory.conversation_memory import ConversationMemory
from tests.fake_encoder import WordEncoder

WORDS = ["ants", "bees", "crabs", "ducks", "eels", "foxes", "goats", "hens", "ibises", "jays"]


def write(folder: Path, count: int = 60) -> Path:
    """Dialogs of four turns about one animal each; the later ones lean on the first and have a rewrite."""
    folder.mkdir(parents=True, exist_ok=True)
    queries, corpus = [], []
    for n in range(count):
        animal = f"{WORDS[n % 10]} of Island {chr(65 + n // 10)}{WORDS[n % 7]}"
        turns = [
            (f"Where do the {animal} live?", f"In house {n}.", None),
            ("What do they eat?", f"Grass number {n}.", f"What do the {animal} eat?"),
            (f"When were they counted in {1900 + n}?", "In May.", f"When were the {animal} counted in {1900 + n}?"),
            ("Who counted?", f"Dr. {n}.", f"Who counted the {animal}?"),
        ]
        corpus.append({"id": f"p{n}", "title": animal, "text": " ".join(f"{animal}: {answer}" for _, answer, _ in turns)})
        queries += [
            {
                "id": f"q{n}-{place}",
                "conversation_id": f"c{n}",
                "question": question,
                "answer": answer,
                "rewrite": rewrite,
                "history": [turn[:2] for turn in turns[:place]],
                "gold": [f"p{n}"],
            }
            for place, (question, answer, rewrite) in enumerate(turns)
        ]
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)), "utf-8")
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, corpus)), "utf-8")
    return folder


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return load_dataset(write(tmp_path / "data"))


@pytest.fixture(autouse=True)
def encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "as_encoder", lambda _encoder: WordEncoder())


def test_dialogs_are_read_whole_and_joined(dataset: Dataset) -> None:
    found = dialogs([dataset])
    assert len(found) == 60
    assert [turn.question for turn in found[0]][1] == "What do they eat?"
    assert found[0][1].alone.startswith("What do the ants of Island")
    (conversation,) = conversations([dataset], 30, seed=0, count=1)
    assert len(conversation) == 30
    assert len({turn.dialog for turn in conversation}) == 8
    assert conversations([dataset], 30, seed=0, count=1) == [conversation]


def test_the_right_round_is_found_where_the_last_rounds_cannot_have_it(dataset: Dataset) -> None:
    rows = {row.method: row for row in evaluate_mentions([dataset], ConversationMemory(WordEncoder())) if row.part == "report"}
    assert rows["last rounds"].recall == 0
    assert rows["history memory"].recall > 0.5
    assert rows["history memory"].probes > 20


def test_a_memory_that_finds_nothing_scores_nothing(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = ConversationMemory(WordEncoder())
    monkeypatch.setattr(memory, "relevant", lambda *_: [])
    assert {row.recall for row in evaluate_mentions([dataset], memory) if row.method == "history memory"} == {0.0}


@pytest.mark.slow
def test_a_conversation_is_run_and_counted(dataset: Dataset) -> None:
    costs = evaluate_costs([dataset], WordEncoder(), rounds=44)
    assert [cost.round for cost in costs] == list(range(1, 45))
    assert all(cost.seconds > 0 and cost.prompt_tokens > 100 for cost in costs)
    again = costs[24:]
    assert sum(cost.recalled for cost in costs[:24]) == 0
    assert sum(cost.recalled for cost in again) >= 10, "what is asked in the same words is recalled"
    # The question is looked up before it is planned; the sub-question too, but where it is the question itself, as in the
    # first round of each dialog of four and in those that are asked again.
    assert [cost.retrievals for cost in costs] == [1, 2, 2, 2] * 6 + [1] * 20
    with pytest.raises(InputError, match="too few dialogs"):
        evaluate_costs([dataset], WordEncoder(), rounds=2000)


def test_a_ratio_is_of_medians_of_windows() -> None:
    costs = [RoundCost(n, 100 if n < 30 else 150, 0.1, 1.0, 1, 0) for n in range(1, 61)]
    costs[9] = RoundCost(10, 9999, 0.1, 1.0, 1, 0)
    assert ratio(costs, "prompt_tokens") == 1.5
    assert ratio(costs[:20], "prompt_tokens") is None


def test_pairs_are_what_they_say(dataset: Dataset) -> None:
    pairs = make_pairs([dataset], 20, seed=1)
    kinds = {(pair.kind, pair.same) for pair in pairs}
    assert kinds >= {("year", False), ("rephrased", True)}
    for pair in pairs:
        assert pair.first != pair.second
        if pair.kind == "year":
            assert sum(a != b for a, b in zip(pair.first.split(), pair.second.split(), strict=True)) == 1
    assert make_pairs([dataset], 20, seed=1) == pairs


@pytest.mark.parametrize("seed", range(20))
def test_a_rephrased_question_keeps_its_year(seed: int) -> None:
    question = "What was the change in the revenue of Acme between 2018 and 2019?"
    other = rephrase(question, random.Random(seed))
    assert other != question
    assert "2018" in other
    assert "2019" in other


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


def test_what_cannot_be_measured_is_one_line(tmp_path: Path) -> None:
    for folders, parts in (([], ["recall"]), ([tmp_path], ["colour"]), ([tmp_path / "none"], ["recall"])):
        with pytest.raises(InputError) as error:
            evaluate_memory(folders, parts=parts)
        assert "\n" not in str(error.value)
    single = tmp_path / "single"
    single.mkdir()
    (single / "queries.jsonl").write_text('{"id": "a", "question": "Who?"}', "utf-8")
    (single / "corpus.jsonl").write_text('{"id": "a", "text": "Me."}', "utf-8")
    with pytest.raises(InputError, match="no dialogs"):
        evaluate_memory([single], parts=["mentions"])
