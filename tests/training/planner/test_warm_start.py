"""The warm start: which plans are kept, what is learned from them, and how wrong input ends."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from langgraph_convcoa.errors import InputError, ModelError
from langgraph_convcoa.reasoning.parsing import parse_chain
from langgraph_convcoa.training.planner.policy import load_policy
from langgraph_convcoa.training.planner.reward import TurnReward
from langgraph_convcoa.training.planner.turn import Environment
from langgraph_convcoa.training.planner.warm_start import (
    Earned,
    Shown,
    WarmStartSettings,
    _shared_loss,
    earned,
    plan_text,
    read_plans,
    warm_start,
)
from tests.training.planner.tiny import PLANS, TURNS, Library, plan_of, tiny_policy

pytest.importorskip("trl")
pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.*:FutureWarning")
GOOD, OTHER = TURNS
GUESS = plan_of(GOOD.question, "John Hopfield described the network in 1982.")


@pytest.fixture(scope="module")
def policy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_policy(tmp_path_factory.mktemp("policy"))


async def test_only_plans_whose_turns_earned_enough_are_kept_the_best_of_each_turn() -> None:
    lost = plan_of("How many moons has Pluto?")
    shown = [Shown(GOOD, PLANS[0]), Shown(GOOD, GUESS), Shown(GOOD, GUESS), Shown(GOOD, "no plan"), Shown(OTHER, lost)]
    environment = Environment(Library())
    kept = await earned(shown, environment)
    assert [(one.turn.id, one.plan, one.reward.total) for one in kept] == [("1", GUESS, pytest.approx(1.45))]
    assert list(kept[0].prompt) == await environment.prompt(GOOD.question)
    both = await earned(shown, environment, best=2)
    assert [one.plan for one in both] == [GUESS, PLANS[0]]
    with pytest.raises(InputError, match=r"None of the 5 plans earned 3 \(the best earned 1.45; 1 are not of the form"):
        await earned(shown, environment, least=3)


async def test_turns_of_two_data_sets_with_one_id_are_two_turns() -> None:
    other = replace(OTHER, id=GOOD.id)
    kept = await earned([Shown(GOOD, PLANS[0]), Shown(other, PLANS[1])], Environment(Library()))
    assert [(one.turn, one.plan) for one in kept] == [(GOOD, PLANS[0]), (other, PLANS[1])]


def test_plans_are_read_by_id_or_by_their_words(tmp_path: Path) -> None:
    file = tmp_path / "plans.jsonl"
    rows: list[dict[str, Any]] = [
        {"id": "1", "plan": PLANS[0]},
        {"question": "Who painted it?", "history": [["What hangs in Oslo?", "The Scream."]], "plan": json.loads(PLANS[1])},
        {"id": "held out", "plan": PLANS[0]},
    ]
    file.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    assert [(one.turn.id, one.plan) for one in read_plans(file, TURNS)] == [("1", PLANS[0]), ("2", PLANS[1])]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "line 1"),
        ('{"id": "1"}', "line 1"),
        ('{"id": "1", "plan": "p"}\n[]', "line 2"),
        ("", "None of the 0 plans"),
        ('{"id": "9", "plan": "p"}', "None of the 1 plans"),
    ],
)
def test_a_file_that_holds_no_plans_is_refused(tmp_path: Path, content: str, told: str) -> None:
    file = tmp_path / "plans.jsonl"
    file.write_text(content)
    with pytest.raises(InputError, match=told):
        read_plans(file, TURNS)
    with pytest.raises(InputError, match="cannot be read as plans"):
        read_plans(tmp_path / "missing.jsonl", TURNS)


def test_a_plan_is_written_as_the_prompt_asks_for_it() -> None:
    chain = parse_chain(GUESS, question="?", actions=["knowledge_retrieval"])
    assert chain is not None
    assert plan_text(chain) == GUESS


def test_reading_a_common_beginning_once_changes_neither_loss_nor_gradient(policy_folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(policy_folder)
    torch.manual_seed(0)
    ids = torch.randint(4, 100, (3, 20))
    ids[:, :9] = ids[0, :9]
    mask = torch.ones_like(ids)
    mask[1, 17:] = mask[2, 15:] = 0
    labels = ids.masked_fill(mask == 0, -100)
    for row, start in enumerate((12, 11, 13)):
        labels[row, :start] = -100
    model(input_ids=ids, attention_mask=mask, labels=labels).loss.backward()
    whole = [weights.grad.clone() for weights in model.parameters()]
    model.zero_grad()
    read = []
    hook = model.register_forward_pre_hook(lambda _, __, given: read.append(given["input_ids"].numel()), with_kwargs=True)
    _shared_loss(model, {"input_ids": ids, "attention_mask": mask, "labels": labels}).backward()
    hook.remove()
    assert sum(read) == 9 + 3 * 11
    for one, weights in zip(whole, model.parameters(), strict=True):
        torch.testing.assert_close(one, weights.grad, atol=1e-6, rtol=1e-4)


def plans_to_learn() -> list[Earned]:
    """With short prompts, which are learned sooner."""
    return [
        Earned(turn, plan, ({"role": "user", "content": f"[Question]: {turn.question}"},), TurnReward())
        for turn, plan in zip(TURNS, PLANS, strict=True)
    ]


@pytest.mark.slow
def test_what_is_learned_is_what_a_prompt_is_answered_with(policy_folder: Path, tmp_path: Path) -> None:
    plans = plans_to_learn()
    settings = WarmStartSettings(steps=80, batch_size=2, learning_rate=1e-2, rank=0)
    losses = warm_start(policy_folder, plans, tmp_path / "warm", settings, device="cpu", told={"command": "c"})
    assert losses[-1] < 0.2 < losses[0]
    written = load_policy(tmp_path / "warm").write([one.prompt for one in plans], max_new_tokens=200)
    assert [one.text for one in written] == list(PLANS)
    card = json.loads((tmp_path / "warm" / "warm_start.json").read_text())
    assert (card["plans"], card["command"], card["settings"]["steps"]) == (2, "c", 80)


def test_lora_is_merged_into_a_whole_model_of_its_own(policy_folder: Path, tmp_path: Path) -> None:
    settings = WarmStartSettings(steps=2, batch_size=2, learning_rate=1e-2, rank=4)
    warm_start(policy_folder, plans_to_learn(), tmp_path / "warm", settings, device="cpu")
    assert not (tmp_path / "warm" / "adapter_config.json").exists()
    before = AutoModelForCausalLM.from_pretrained(policy_folder).state_dict()
    after = AutoModelForCausalLM.from_pretrained(tmp_path / "warm").state_dict()
    changed = [name for name in before if not torch.equal(before[name], after[name])]
    assert changed
    assert not any("embed" in name for name in changed)


def test_a_folder_that_holds_other_things_is_left_alone(policy_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear")
    with pytest.raises(ModelError, match="holds other files"):
        warm_start(policy_folder, plans_to_learn()[:1], tmp_path)
    assert (tmp_path / "letter.txt").read_text() == "Dear"


@pytest.mark.parametrize(
    "wrong", [{"epochs": 0}, {"steps": 0}, {"batch_size": 0}, {"rank": -1}, {"learning_rate": float("nan")}]
)
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        WarmStartSettings(**wrong)


def test_no_plan_is_nothing_to_learn_from(policy_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no plan to learn from"):
        warm_start(policy_folder, [], tmp_path / "warm")
