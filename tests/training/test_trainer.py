"""Training with transformers' `Trainer`: stopped and resumed runs, settings, logs."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.training.trainer import TrainingSettings, Unfinished, train

pytest.importorskip("accelerate")

ITEMS = list(range(23))
SETTINGS = TrainingSettings(epochs=3, batch_size=5, learning_rate=0.01, weight_decay=0.1, checkpoint_every=4, seed=3)


class Contrast:
    """Two views of an item, told from those of the batch's other items."""

    def __init__(self, stop_at: int | None = None, bad_at: int | None = None) -> None:
        self.batches: list[list[int]] = []
        self.stop_at, self.bad_at = stop_at, bad_at

    def __call__(self, module: nn.Module, items: Sequence[int]) -> Tensor:
        self.batches.append(list(items))
        if len(self.batches) == self.stop_at:
            os.kill(os.getpid(), signal.SIGINT)
        rows = torch.stack([torch.sin(torch.arange(6.0) * (item + 1)) for item in items])
        states = module(rows)
        if len(self.batches) == self.bad_at:
            return states.sum() * torch.nan
        return nn.functional.cross_entropy(states @ rows[:, :4].T, torch.arange(len(items)))


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 4))


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def run(module: nn.Module, loss: Any = None, settings: TrainingSettings = SETTINGS, **given: Any) -> list[float]:
    return train(module, loss or Contrast(), ITEMS, settings, device="cpu", **given)


@pytest.mark.parametrize("stop_at", [1, 6, 14])
def test_a_stopped_and_resumed_run_ends_with_the_same_weights(tmp_path: Path, stop_at: int) -> None:
    whole, parts = model(), model()
    straight, resumed = Contrast(), Contrast(stop_at)
    losses = run(whole, straight)
    place = Unfinished(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        run(parts, resumed, unfinished=place)
    assert len(resumed.batches) == stop_at
    # A checkpoint that was being written is not used. Another process has other random numbers and a new model.
    (place.folder / "checkpoint-99").mkdir()
    torch.manual_seed(99)
    parts = model()
    again = run(parts, resumed, unfinished=place, resume=True)
    assert resumed.batches == straight.batches
    assert again == losses[stop_at:]
    assert same(whole, parts)


def test_a_run_that_broke_off_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    place, resumed, straight, loss = Unfinished(tmp_path / "run"), model(), model(), Contrast()
    with pytest.raises(RetrievalError, match="nan after 10 steps"):
        run(model(), Contrast(bad_at=11), unfinished=place)
    run(resumed, loss, unfinished=place, resume=True)
    run(straight)
    assert len(loss.batches) == 15 - 8
    assert same(resumed, straight)


def test_every_item_is_seen_once_an_epoch_in_an_order_of_its_own() -> None:
    loss = Contrast()
    run(model(), loss)
    epochs = [[item for batch in loss.batches[start : start + 5] for item in batch] for start in (0, 5, 10)]
    assert all(sorted(epoch) == ITEMS for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


def test_frozen_weights_and_those_with_a_rate_of_nought_stay() -> None:
    seen: list[tuple[int, int]] = []
    module = model()
    module[3].weight.requires_grad_(False)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    short = replace(SETTINGS, steps=10, weight_decay=0.0)
    run(module, settings=short, rates={"0.": 0.0, "0.bias": 1.0}, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (10, 10)
    changed = {name for name, tensor in module.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {"0.bias", "3.bias"}
    assert not module.training


def test_logs_are_written_for_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run(model(), logs=tmp_path)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert {"train/loss", "train/learning_rate"} <= set(events.Tags()["scalars"])
    (tmp_path / "file").touch()
    with pytest.raises(RetrievalError, match="file cannot be written"):
        run(model(), logs=tmp_path / "file")


def test_a_checkpoint_of_another_run_is_told_apart(tmp_path: Path) -> None:
    place = Unfinished(tmp_path / "run")
    run(model(), unfinished=place, about={"data": "a"})
    again: dict[str, Any] = {"unfinished": place, "resume": True, "about": {"data": "a"}}
    with pytest.raises(InputError, match="run holds an unfinished training: resume it"):
        run(model(), unfinished=place)
    with pytest.raises(InputError, match=r"run was started with learning_rate = 0\.01, not 0\.5"):
        run(model(), settings=replace(SETTINGS, learning_rate=0.5), **again)
    with pytest.raises(InputError, match="started with examples = 23, not 22"):
        train(model(), Contrast(), ITEMS[1:], SETTINGS, device="cpu", **again)
    with pytest.raises(InputError, match="started with data = 'a', not 'b'"):
        run(model(), **(again | {"about": {"data": "b"}}))
    run(model(), settings=replace(SETTINGS, checkpoint_every=9), **again)
    (place.folder / "training.json").write_text("{")
    with pytest.raises(RetrievalError, match=r"training\.json is damaged"):
        run(model(), **again)
    place.remove()
    place.folder.mkdir()
    (place.folder / "letter.txt").touch()
    with pytest.raises(InputError, match="is not the folder of a training"):
        run(model(), unfinished=place)


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import Trainer

    def full(*_given: Any, **_named: Any) -> None:
        # As torch tells of a full disk.
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 76352 vs 76244")

    monkeypatch.setattr(Trainer, "_save_checkpoint", full)
    with pytest.raises(RetrievalError, match=r"run cannot be written .* free space or name another folder"):
        run(model(), unfinished=Unfinished(tmp_path / "run"))


def test_what_cannot_be_trained_is_told() -> None:
    with pytest.raises(RetrievalError, match="The loss is nan after 2 steps: lower the learning rate"):
        run(model(), Contrast(bad_at=3))
    with pytest.raises(InputError, match="no example of this kind"):
        train(model(), Contrast(), [], SETTINGS)
    with pytest.raises(InputError, match="every parameter of the model is frozen"):
        run(model().requires_grad_(False))
    with pytest.raises(InputError, match="set CUDA_VISIBLE_DEVICES"):
        train(model(), Contrast(), ITEMS, SETTINGS, device="cuda:1")
    with pytest.raises(InputError, match="no batch could be made"):
        run(model(), batches=lambda _epoch, _random: [])


@pytest.mark.parametrize(
    "wrong", [{"epochs": 0}, {"batch_size": 0}, {"learning_rate": 0.0}, {"warmup": 2.0}, {"seed": -1}, {"steps": 0}]
)
def test_settings_out_of_range_are_told(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        TrainingSettings(**wrong)
