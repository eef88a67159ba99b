"""GRPO of a planner on whole turns, with a tiny policy."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from langchain_core.documents import Document

from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.errors import InputError, ModelError
from langgraph_convcoa.training.planner import grpo
from langgraph_convcoa.training.planner.grpo import PlannerJob, PlannerTraining, train_planner
from langgraph_convcoa.training.planner.reward import TurnReward
from langgraph_convcoa.training.planner.turn import Environment
from langgraph_convcoa.training.planner.unfinished import read_rows
from tests.training.planner.tiny import PLANS, TEXTS, TURNS, Library, tiny_policy

pytest.importorskip("trl")
pytest.importorskip("peft")
pytestmark = [
    pytest.mark.usefixtures("without_gpu"),
    pytest.mark.filterwarnings("ignore:`(is_)?gradient_checkpointing` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true:UserWarning"),
]
SMALL = {"questions": 2, "group": 2, "longest": 12, "rank": 4, "beta": 0.0, "learning_rate": 1e-2}


class Letters(Environment):
    """Rewards a plan by how much of it is one letter, whatever a turn would make of it."""

    def __init__(self, letter: str = "e") -> None:
        super().__init__(Library())
        self.letter = letter

    async def rewards(self, plans: Sequence[str], turns: Sequence[Query]) -> list[TurnReward | None]:
        return [TurnReward(final=plan.count(self.letter) / max(len(plan), 1)) for plan in plans]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_policy(tmp_path_factory.mktemp("base"))


def run(base: Path, out: Path, environment: Environment | None = None, resume: bool = False, **given: Any) -> Any:
    notify = given.pop("notify", None)
    job = PlannerJob(out, resume=resume, notify=notify, logs=given.pop("logs", None))
    settings = PlannerTraining(**{**SMALL, **given})
    return train_planner(TURNS, environment or Letters(), base, job, settings)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    found: dict[str, torch.Tensor] = load_file(folder / "adapter_model.safetensors")
    return found


def test_what_cannot_be_trained_with_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no question with an answer"):
        train_planner([Query("1", "Why?")], Letters(), "a model", PlannerJob(tmp_path / "out"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    with pytest.raises(ModelError, match="holds other files"):
        PlannerJob(tmp_path / "full").check()
    with pytest.raises(InputError, match="group must be at least 2"):
        PlannerTraining(group=1)
    with pytest.raises(InputError, match="learning_rate"):
        PlannerTraining(learning_rate=float("nan"))


def begun(place: Path, **more: Any) -> Path:
    """The folder of a training that was stopped in its third step, with a checkpoint of the second."""
    job = PlannerJob(place / "out")
    settings = PlannerTraining(**{**SMALL, **more})
    (job.unfinished / "checkpoint-2").mkdir(parents=True)
    (job.unfinished / "checkpoint-2" / "trainer_state.json").write_text("{}")
    told = grpo._told("a model", settings, TURNS, Letters(), job) | {"processes": 1}
    (job.unfinished / "planner.json").write_text(json.dumps(told))
    for name in ("training.jsonl", "plans.jsonl"):
        (job.unfinished / name).write_text("".join(json.dumps({"step": step}) + "\n" for step in (1, 2, 3)))
    return job.unfinished


def steps_in(folder: Path) -> list[list[int]]:
    return [[row["step"] for row in read_rows(folder / name)] for name in ("training.jsonl", "plans.jsonl")]


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes before a training, without it."""
    monkeypatch.setattr(grpo._Run, "go", lambda *_: [])


@pytest.mark.usefixtures("no_training")
def test_of_several_processes_the_first_alone_cuts_what_is_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[list[list[int]]] = []
    unfinished = begun(tmp_path)
    for first in (False, True):
        # The others go on when the first has done so.
        one = SimpleNamespace(
            is_main_process=first, num_processes=1, wait_for_everyone=lambda: waited.append(steps_in(unfinished))
        )
        monkeypatch.setattr(grpo, "processes_of_training", lambda one=one: one)
        train_planner(TURNS, Letters(), "a model", PlannerJob(tmp_path / "out", resume=True), PlannerTraining(**SMALL))
    assert waited == [[[1, 2, 3]] * 2, [[1, 2]] * 2]


@pytest.mark.usefixtures("no_training")
def test_a_start_that_failed_stands_in_nobodys_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = PlannerJob(tmp_path / "out")

    def start(resume: bool = False) -> None:
        train_planner(TURNS, Letters(), "a model", replace(job, resume=resume), PlannerTraining(**SMALL))

    def failing(*_: Any) -> Any:
        raise ModelError("no such model")

    with monkeypatch.context() as patch, pytest.raises(ModelError, match="no such model"):
        patch.setattr(grpo._Run, "go", failing)
        start()
    (job.unfinished / "checkpoint-1").mkdir()
    (job.unfinished / "plans.jsonl").write_text('{"step": 1}\n')
    for resume in (False, True):
        start(resume)
        assert [file.name for file in job.unfinished.iterdir()] == ["planner.json"]
    # Files of others are never removed.
    (job.unfinished / "letter.txt").touch()
    with pytest.raises(InputError, match="holds other files"):
        start()
    (job.unfinished / "planner.json").unlink()
    (job.unfinished / "letter.txt").unlink()
    (job.unfinished / "checkpoint-1").mkdir()
    with pytest.raises(InputError, match="holds other files"):
        start(resume=True)
    assert (job.unfinished / "checkpoint-1").is_dir()


@pytest.mark.usefixtures("no_training")
def test_two_trainings_into_one_folder_are_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = PlannerJob(tmp_path / "out")

    def start() -> list[Any]:
        return train_planner(TURNS, Letters(), "a model", job, PlannerTraining(**SMALL))

    def second(*_: Any) -> Any:
        before = (job.unfinished / "planner.json").read_bytes()
        # Before the first checkpoint, where nothing could be resumed, and after it, where it could be deleted.
        for step in (0, 1):
            if step:
                place = job.unfinished / "checkpoint-1"
                place.mkdir()
                (place / "trainer_state.json").write_text("{}")
            with ThreadPoolExecutor(1) as pool, pytest.raises(InputError, match=r"Another training writes to .*out\.training"):
                pool.submit(start).result()
            assert (job.unfinished / "planner.json").read_bytes() == before
        shutil.rmtree(place)
        return ["the first"]

    with monkeypatch.context() as patch:
        patch.setattr(grpo._Run, "go", second)
        assert start() == ["the first"]
    assert [file.name for file in tmp_path.iterdir()] == ["out.training"]
    assert start() == []


@pytest.mark.usefixtures("no_training")
def test_a_training_is_resumed_over_the_same_documents_and_with_the_same_reasoner_only(tmp_path: Path) -> None:
    from langchain_core.language_models import FakeListChatModel

    from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
    from tests.fake_encoder import WordEncoder

    def over(*ids: str, **more: Any) -> Environment:
        documents = [Document(text, id=name) for name, text in zip(ids, TEXTS, strict=False)]
        return Environment(HopfieldRetriever.from_documents(documents, encoder=WordEncoder()), **more)

    unfinished, job = begun(tmp_path), PlannerJob(tmp_path / "out", resume=True)
    with pytest.raises(InputError, match="unfinished training"):
        replace(job, resume=False).check()
    settings = PlannerTraining(**SMALL)
    told = grpo._told("a model", settings, TURNS, over("a", "b"), job)
    (unfinished / "planner.json").write_text(json.dumps(told))
    train_planner(TURNS, over("a", "b"), "a model", job, settings)
    other = (Query("1", TURNS[0].question, (("Who?", "He."),), answer="1982"), TURNS[1])
    for turns, environment, message in (
        (TURNS, over("a", "c"), r"knowledge_retrieval = 'HopfieldRetriever of 2 documents \("),
        (TURNS, over("a", "b", context={"look_first": False, "k": 3}), "k = None, not 3"),
        (TURNS, over("a", "b", context={"look_first": True}), "look_first = False, not True"),
        (
            TURNS,
            over("a", "b", reasoner=FakeListChatModel(responses=["{}"])),
            "reasoner = 'ExtractiveReasoner', not \"ChatModelReasoner with the model 'FakeListChatModel'\"",
        ),
        (other, over("a", "b"), "histories = "),
    ):
        with pytest.raises(InputError, match=message):
            train_planner(turns, environment, "a model", job, settings)
    # What an earlier version did not tell is not compared.
    (unfinished / "planner.json").write_text(json.dumps({name: told[name] for name in ("base", "training", "reward", "data")}))
    train_planner(TURNS, over("a", "c"), "a model", job, settings)


def test_weights_that_are_trained_are_float32() -> None:
    lora, full = PlannerTraining(), PlannerTraining(full=True)
    assert [grpo._dtype(lora, cuda) for cuda in (True, False)] == ["auto", "float32"]
    assert [grpo._dtype(full, cuda) for cuda in (True, False)] == ["float32", "float32"]
    assert grpo._dtype(PlannerTraining(bf16=False), True) == "float32"


@pytest.mark.slow
@pytest.mark.parametrize("letter", "ean")
def test_a_toy_policy_learns_the_plan_that_earns_more(base: Path, tmp_path: Path, letter: str) -> None:
    # All weights: the drawn embeddings are so short that LoRA, which leaves them, can hardly prefer a token.
    curve = run(base, tmp_path / "out", Letters(letter), steps=18, group=8, full=True)
    first, last = (sum(row["reward"] for row in part) / 4 for part in (curve[:4], curve[-4:]))
    assert last > 1.5 * first


@pytest.mark.slow
def test_a_training_that_was_stopped_and_killed_ends_with_the_weights_of_one_that_was_not(base: Path, tmp_path: Path) -> None:
    def stopped(line: str) -> None:
        if line.startswith("step 1 "):
            signal.raise_signal(signal.SIGINT)

    def killed(line: str) -> None:
        if line.startswith("step 5 "):
            raise KeyboardInterrupt

    few: dict[str, Any] = {"steps": 6, "checkpoint_every": 4}
    run(base, tmp_path / "whole", **few)
    with pytest.raises(KeyboardInterrupt):
        run(base, tmp_path / "out", **few, notify=stopped)
    # Ctrl-C is heeded at the end of the step under way, with a checkpoint.
    assert [place.name for place in (tmp_path / "out.training").glob("checkpoint-*")] == ["checkpoint-2"]
    with pytest.raises(KeyboardInterrupt):
        run(base, tmp_path / "out", **few, notify=killed, resume=True)
    curve = run(base, tmp_path / "out", **few, resume=True)
    assert [row["step"] for row in curve] == [1, 2, 3, 4, 5, 6]
    plans = [json.loads(line) for line in (tmp_path / "out" / "plans.jsonl").read_text().splitlines()]
    assert [row["step"] for row in plans] == [step for step in range(1, 7) for _ in range(4)]
    one, other = weights(tmp_path / "whole"), weights(tmp_path / "out")
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert any(bool(value.any()) for name, value in one.items() if "lora_B" in name)
    assert not (tmp_path / "out.training").exists()


@pytest.mark.slow
def test_the_prompt_that_is_trained_on_is_the_one_that_runs(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from langchain_core.messages import AIMessage, HumanMessage

    from langgraph_convcoa.graph import build_graph
    from langgraph_convcoa.training.planner.shared_prompt import SharedPromptTrainer

    trained: list[list[int]] = []
    generate = SharedPromptTrainer._generate_single_turn

    def seen(self: Any, prompt_ids: Any, *given: Any, **named: Any) -> Any:
        trained.extend(prompt_ids)
        return generate(self, prompt_ids, *given, **named)

    monkeypatch.setattr(SharedPromptTrainer, "_generate_single_turn", seen)
    # Plans are so short that the graph's own environment finds each malformed: all groups are equal.
    curve = run(base, tmp_path / "out", Environment(Library()), steps=1, logs=tmp_path / "logs")
    assert len(list((tmp_path / "logs").glob("events.*"))) == 1
    plans = [json.loads(line) for line in (tmp_path / "out" / "plans.jsonl").read_text().splitlines()]
    assert [(row["step"], row["reward"], row["fault"]) for row in plans] == [(1, -2, "no JSON")] * 4
    assert {row["id"] for row in plans} == {turn.id for turn in TURNS}
    assert curve[0]["turn/malformed"] == curve[0]["frac_reward_zero_std"] == 1
    assert curve[0]["reward"] == -2
    assert not any(bool(value.any()) for name, value in weights(tmp_path / "out").items() if "lora_B" in name)

    from transformers import LlamaForCausalLM

    sent: list[list[int]] = []

    def answered(self: Any, input_ids: Any, **named: Any) -> Any:
        sent.append(input_ids[0].tolist())
        return torch.cat([input_ids, input_ids.new_tensor([[tokens[0]]])], dim=1)

    from transformers import AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(base)(PLANS[0]).input_ids
    monkeypatch.setattr(LlamaForCausalLM, "generate", answered)
    graph = build_graph(
        model=f"huggingface:{base}", adapter=tmp_path / "out", retriever=Library(), context={"look_first": False}
    ).compile()
    for turn in TURNS:
        sent.clear()
        earlier = [message for asked, said in turn.history for message in (HumanMessage(asked), AIMessage(said))]
        graph.invoke({"messages": [*earlier, HumanMessage(turn.question)]})
        assert sent[0] in trained


@pytest.mark.slow
def test_a_step_without_any_reward_and_a_full_disk_end_the_training(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(Letters):
        def __init__(self, rewards: Sequence[float | None]) -> None:
            super().__init__()
            self.found = rewards

        async def rewards(self, plans: Sequence[str], turns: Sequence[Query]) -> list[TurnReward | None]:
            return [None if one is None else TurnReward(final=one) for one in self.found]

    with pytest.raises(InputError, match="No plan of this step"):
        run(base, tmp_path / "out", Failing([None] * 4), steps=1)
    # A group with a single reward, and one whose rewards are equal, teach nothing; no reward is no zero.
    curve = run(base, tmp_path / "out", Failing([None, 0.5, 1.0, 1.0]), steps=1)
    assert curve[0]["reward"] == pytest.approx(2.5 / 3)
    # How far a single reward is from others is not known.
    assert (curve[0]["turn/unrewarded"], curve[0]["frac_reward_zero_std"]) == (0.25, 0.5)
    assert not any(bool(value.any()) for name, value in weights(tmp_path / "out").items() if "lora_B" in name)

    from transformers import Trainer

    def full(*_given: Any, **_named: Any) -> None:
        # As torch tells of a full disk.
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 76352 vs 76244")

    monkeypatch.setattr(Trainer, "_save_checkpoint", full)
    with pytest.raises(ModelError, match=r"other\.training cannot be written .* free space .* then --resume"):
        run(base, tmp_path / "other", steps=1)
