"""The loop: interrupted and resumed runs, gradient caching, settings, logs."""

from __future__ import annotations

import ast
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.training.loop.gradient_cache import backward
from langgraph_convcoa.training.loop.trainer import TrainingSettings, schedule, train
from tests import ROOT
from tests.bounds import started

pytest.importorskip("accelerate")

ITEMS = list(range(23))
SETTINGS = TrainingSettings(epochs=3, batch_size=5, learning_rate=0.01, weight_decay=0.1, checkpoint_every=4, seed=3)


class Contrast:
    """Two views of an item, told from those of the batch's other items."""

    def __init__(self, stop_at: int | None = None, bad_at: int | None = None) -> None:
        self.batches: list[list[int]] = []
        self.stop_at, self.bad_at = stop_at, bad_at

    def represent(self, module: nn.Module, items: Sequence[int]) -> tuple[Tensor, ...]:
        rows = torch.stack([torch.sin(torch.arange(6.0) * (item + 1)) for item in items])
        # Two rows an item in the second tensor, as passages with windows would be.
        return module(rows), rows.repeat_interleave(2, dim=0)[:, :4]

    def loss(self, module: nn.Module, vectors: tuple[Tensor, ...], items: Sequence[int]) -> Mapping[str, Tensor]:
        self.batches.append(list(items))
        if len(self.batches) == self.stop_at:
            os.kill(os.getpid(), signal.SIGINT)
        if len(self.batches) == self.bad_at:
            return {"contrast": vectors[0].sum() * torch.nan}
        states, targets = vectors
        targets = targets.view(len(items), 2, -1).mean(dim=1)
        return {
            "contrast": nn.functional.cross_entropy(states @ targets.T, torch.arange(len(items))),
            "length": 0.01 * states.square().mean(),
        }


def model(dropout: float = 0.3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 4))


def weights(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


@pytest.mark.parametrize("stop_at", [1, 6, 14])
@pytest.mark.parametrize("chunk", [None, 2])
def test_an_interrupted_and_resumed_run_ends_with_the_same_weights(tmp_path: Path, stop_at: int, chunk: int | None) -> None:
    settings = replace(SETTINGS, chunk=chunk, evaluate_every=2)
    scores = {"evaluate": lambda module: float(-module[0].weight.square().sum()), "device": "cpu"}
    whole, parts = model(), model()
    straight, resumed = Contrast(), Contrast(stop_at)
    report = train(whole, straight, ITEMS, settings, **scores)
    with pytest.raises(KeyboardInterrupt):
        train(parts, resumed, ITEMS, settings, checkpoint=tmp_path / "run.safetensors", **scores)
    assert len(resumed.batches) == stop_at
    # Another process would have other random numbers and a new model.
    torch.manual_seed(99)
    parts = model()
    again = train(parts, resumed, ITEMS, settings, checkpoint=tmp_path / "run.safetensors", resume=True, **scores)
    assert resumed.batches == straight.batches
    assert same(whole, parts)
    assert [(step, score) for step, _, score in again.evaluations] == [(step, score) for step, _, score in report.evaluations]
    assert again.step == report.step == 15


@pytest.mark.slow
def test_a_killed_run_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    program = textwrap.dedent(
        f"""
        import os, sys
        sys.path.insert(0, {str(ROOT)!r})
        from tests.training.loop.test_trainer import ITEMS, SETTINGS, Contrast, Path, model, train
        class Killed(Contrast):
            def loss(self, module, vectors, items):
                if len(self.batches) == 10:
                    os._exit(9)
                return super().loss(module, vectors, items)
        train(model(), Killed(), ITEMS, SETTINGS, checkpoint=Path(sys.argv[1]), device="cpu")
        """
    )
    path = tmp_path / "run.safetensors"
    ended = subprocess.run([sys.executable, "-c", program, str(path)], check=False, capture_output=True, timeout=120)
    assert ended.returncode == 9, ended.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["run.safetensors"]
    resumed, straight, objective = model(), model(), Contrast()
    train(resumed, objective, ITEMS, SETTINGS, checkpoint=path, resume=True, device="cpu")
    train(straight, Contrast(), ITEMS, SETTINGS, device="cpu")
    assert len(objective.batches) == 15 - 8
    assert same(resumed, straight)


@pytest.mark.slow
def test_several_devices_share_every_batch_and_end_with_the_same_weights(tmp_path: Path) -> None:
    program = textwrap.dedent(
        f"""
        import os, sys
        sys.path.insert(0, {str(ROOT)!r})
        import torch
        from safetensors.torch import save_file
        from tests.training.loop.test_trainer import ITEMS, SETTINGS, Contrast, Path, model, replace, train
        rank = int(os.environ["RANK"])
        module, objective = model(dropout=0.0), Contrast()
        if rank:
            # Made otherwise: the first device's weights count.
            torch.nn.init.zeros_(module[0].weight)
        train(module, objective, ITEMS[:20], replace(SETTINGS, batch_size=10, epochs=1), checkpoint=Path(sys.argv[1]))
        save_file(module.state_dict(), sys.argv[1] + str(rank))
        print(objective.batches)
        torch.distributed.destroy_process_group()
        """
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "ACCELERATE_USE_CPU": "true"}
    path = tmp_path / "run.safetensors"
    command = [sys.executable, "-W", "ignore", "-c", program, str(path)]
    with ExitStack() as stack:
        running = []
        for rank in map(str, range(2)):
            mine = {**os.environ, **shared, "RANK": rank, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": "2"}
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            running.append(stack.enter_context(started(command, 300, env=mine, text=True, **pipes)))
        # Where one waits for the other for ever, both are killed.
        ended = [process.communicate() for process in running]
    assert [process.returncode for process in running] == [0, 0], ended[0][1] + ended[1][1]
    first, second = (load_file(f"{path}{rank}") for rank in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    parts = [ast.literal_eval(out) for out, _ in ended]
    assert [sorted(a + b) for a, b in zip(*parts, strict=True)] == [sorted(batch) for batch in _batches(10, 20)]

    # One process that averages the gradients of both shares has the same weights.
    class Both(Contrast):
        def loss(self, module: nn.Module, vectors: tuple[Tensor, ...], items: Sequence[int]) -> Mapping[str, Tensor]:
            total = torch.zeros(())
            for rank in range(2):
                rows = torch.arange(len(items))[rank::2]
                twice = torch.stack([2 * rows, 2 * rows + 1], dim=1).flatten()
                found = super().loss(module, (vectors[0][rows], vectors[1][twice]), list(items)[rank::2])
                total = total + torch.stack(list(found.values())).sum() / 2
            return {"both": total}

    alone = model(dropout=0.0)
    train(alone, Both(), ITEMS[:20], replace(SETTINGS, batch_size=10, epochs=1), device="cpu")
    for name, tensor in alone.state_dict().items():
        torch.testing.assert_close(first[name], tensor, rtol=1e-4, atol=1e-6)


def _batches(size: int, count: int) -> list[list[int]]:
    objective = Contrast()
    train(model(), objective, ITEMS[:count], replace(SETTINGS, batch_size=size, epochs=1), device="cpu")
    return objective.batches


@pytest.mark.parametrize("chunk", [1, 3, 4])
def test_gradient_caching_gives_the_gradient_of_the_whole_batch(chunk: int) -> None:
    plain, cached = model(dropout=0.0).double(), model(dropout=0.0).double()

    class Wide(Contrast):
        def represent(self, module: nn.Module, items: Sequence[int]) -> tuple[Tensor, ...]:
            rows = torch.stack([torch.sin(torch.arange(6.0, dtype=torch.float64) * (item + 1)) for item in items])
            return module(rows), rows.repeat_interleave(2, dim=0)[:, :4]

    first = backward(plain, Wide(), ITEMS[:7])
    second = backward(cached, Wide(), ITEMS[:7], chunk=chunk)
    assert first == pytest.approx(second, rel=1e-12)
    for a, b in zip(plain.parameters(), cached.parameters(), strict=True):
        assert a.grad is not None
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-12, atol=1e-14)


def test_gradient_caching_draws_the_same_dropout_in_both_passes() -> None:
    seen: list[Tensor] = []

    class Seen(Contrast):
        def represent(self, module: nn.Module, items: Sequence[int]) -> tuple[Tensor, ...]:
            found = super().represent(module, items)
            seen.append(found[0].detach().clone())
            return found

    backward(model().train(), Seen(), ITEMS[:6], chunk=2, seed=(5, 7))
    assert len(seen) == 6
    for without_graph, with_graph in zip(seen[:3], seen[3:], strict=True):
        assert torch.equal(without_graph, with_graph)


def test_every_item_is_seen_once_an_epoch_in_an_order_of_its_own() -> None:
    objective = Contrast()
    train(model(), objective, ITEMS, SETTINGS, device="cpu")
    epochs = [[item for batch in objective.batches[start : start + 5] for item in batch] for start in (0, 5, 10)]
    assert all(sorted(epoch) == ITEMS for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


def test_the_callers_random_numbers_and_the_result_do_not_depend_on_each_other() -> None:
    one, two = model(), model()
    torch.manual_seed(1)
    train(one, Contrast(), ITEMS, SETTINGS, device="cpu")
    drawn = torch.rand(3)
    torch.manual_seed(1)
    assert torch.equal(drawn, torch.rand(3))
    train(two, Contrast(), ITEMS, SETTINGS, device="cpu")
    assert same(one, two)
    train(two := model(), Contrast(), ITEMS, replace(SETTINGS, seed=4), device="cpu")
    assert not same(one, two)


def test_the_learning_rate_rises_and_falls_and_frozen_weights_stay() -> None:
    rates: list[float] = []
    module = model()
    module[0].weight.requires_grad_(False)
    before = weights(module)

    class Log:
        def __call__(self, _done: int, _total: int) -> None:
            rates.append(0.0)

    report = train(module, Contrast(), ITEMS, replace(SETTINGS, steps=10, warmup=0.2), device="cpu", progress=Log())
    assert report.step == 10
    assert len(rates) == 11
    assert torch.equal(module[0].weight, before["0.weight"])
    assert not torch.equal(module[3].weight, before["3.weight"])
    assert [schedule(step, 10, 0.2) for step in range(10)] == [0.5, 1.0, *(pytest.approx(n / 8) for n in range(8, 0, -1))]


def test_a_rate_of_nought_leaves_the_parameters_named_so_alone() -> None:
    module = model()
    before = weights(module)
    train(module, Contrast(), ITEMS, replace(SETTINGS, weight_decay=0.0), rates={"0.": 0.0, "0.bias": 1.0}, device="cpu")
    assert torch.equal(module[0].weight, before["0.weight"])
    assert not torch.equal(module[0].bias, before["0.bias"])


def test_scores_are_taken_on_the_way_in_evaluation_mode() -> None:
    scores = iter([0.1, 0.7, 0.3])
    kept: list[dict[str, Tensor]] = []
    module = model()

    def evaluate(at: nn.Module) -> float:
        assert not at.training
        kept.append(weights(at))
        return next(scores)

    settings = replace(SETTINGS, evaluate_every=5)
    report = train(module, Contrast(), ITEMS, settings, evaluate=evaluate, device="cpu")
    assert [score for *_, score in report.evaluations] == [0.1, 0.7, 0.3]
    assert all(torch.equal(module.state_dict()[name], tensor) for name, tensor in kept[2].items())


def test_bfloat16_encodes_in_half_precision_and_keeps_the_loss_in_float32() -> None:
    kinds: list[torch.dtype] = []

    class Kinds(Contrast):
        def represent(self, module: nn.Module, items: Sequence[int]) -> tuple[Tensor, ...]:
            found = super().represent(module, items)
            kinds.append(found[0].dtype)
            return found

        def loss(self, module: nn.Module, vectors: tuple[Tensor, ...], items: Sequence[int]) -> Mapping[str, Tensor]:
            kinds.append(vectors[0].dtype)
            return super().loss(module, vectors, items)

    train(model(), Kinds(), ITEMS, replace(SETTINGS, steps=1, mixed_precision="bf16"), device="cpu")
    assert kinds == [torch.bfloat16, torch.float32]


def test_logs_are_written_for_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(model(), Contrast(), ITEMS, SETTINGS, evaluate=lambda _module: 0.5, logs=tmp_path, device="cpu")
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert set(events.Tags()["scalars"]) == {"loss/contrast", "loss/length", "learning_rate", "score"}
    assert [event.step for event in events.Scalars("loss/contrast")] == [10, 15]


def checkpointed(path: Path) -> None:
    train(model(), Contrast(), ITEMS, SETTINGS, checkpoint=path, fingerprint="a", device="cpu")


def test_logs_that_cannot_be_written_are_an_error_that_names_them(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "file").touch()
    with pytest.raises(RetrievalError, match="file"):
        train(model(), Contrast(), ITEMS, SETTINGS, logs=tmp_path / "file", device="cpu")


def test_a_checkpoint_of_another_run_is_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    checkpointed(path)
    same_run = {"checkpoint": path, "resume": True, "fingerprint": "a", "device": "cpu"}
    with pytest.raises(InputError, match=r"run\.safetensors holds an unfinished training: resume it"):
        train(model(), Contrast(), ITEMS, SETTINGS, checkpoint=path, fingerprint="a", device="cpu")
    with pytest.raises(InputError, match=r"run\.safetensors was started with learning_rate = 0\.01, not 0\.5"):
        train(model(), Contrast(), ITEMS, replace(SETTINGS, learning_rate=0.5), **same_run)
    with pytest.raises(InputError, match="started with examples = 23, not 22"):
        train(model(), Contrast(), ITEMS[1:], SETTINGS, **same_run)
    with pytest.raises(InputError, match="started with data = 'a', not 'b'"):
        train(model(), Contrast(), ITEMS, SETTINGS, **(same_run | {"fingerprint": "b"}))
    other = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Dropout(0.3), nn.Linear(9, 4))
    with pytest.raises(InputError, match=r"0\.bias has shape \(8,\) there and \(9,\) here"):
        train(other, Contrast(), ITEMS, SETTINGS, **same_run)
    frozen = model()
    frozen[0].bias.requires_grad_(False)
    with pytest.raises(InputError, match=r"0\.bias has shape \(8,\) there and none here"):
        train(frozen, Contrast(), ITEMS, SETTINGS, **same_run)


def test_a_damaged_checkpoint_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    checkpointed(path)
    whole = path.read_bytes()
    resume = {"checkpoint": path, "resume": True, "fingerprint": "a", "device": "cpu"}
    for damaged in (whole[: len(whole) // 2], b"", b"no checkpoint at all"):
        path.write_bytes(damaged)
        with pytest.raises(RetrievalError, match=r"run\.safetensors cannot be read .*delete it to start again"):
            train(model(), Contrast(), ITEMS, SETTINGS, **resume)
    path.write_bytes(whole.replace(b'\\"version\\":2', b'\\"version\\":9').replace(b'\\"version\\": 2', b'\\"version\\": 9'))
    with pytest.raises(RetrievalError, match=r"run\.safetensors is of version 9, not 2"):
        train(model(), Contrast(), ITEMS, SETTINGS, **resume)
    from safetensors.torch import save_file

    save_file({"weights": torch.zeros(1)}, path)
    with pytest.raises(RetrievalError, match="is no checkpoint of a training"):
        train(model(), Contrast(), ITEMS, SETTINGS, **resume)


def test_a_checkpoint_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RetrievalError, match=r"The checkpoint .*file.run\.safetensors cannot be written"):
        train(model(), Contrast(), ITEMS, SETTINGS, checkpoint=tmp_path / "file" / "run.safetensors", device="cpu")


def test_a_loss_that_is_not_finite_ends_the_run_and_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    with pytest.raises(RetrievalError, match="NaN or infinite at step 6: lower the learning rate"):
        train(model(), Contrast(bad_at=6), ITEMS, SETTINGS, checkpoint=path, device="cpu")
    resumed, straight = model(), model()
    train(resumed, Contrast(), ITEMS, SETTINGS, checkpoint=path, resume=True, device="cpu")
    train(straight, Contrast(), ITEMS, SETTINGS, device="cpu")
    assert same(resumed, straight)


def test_what_cannot_be_trained_is_told_at_once() -> None:
    with pytest.raises(InputError, match="nothing to train on"):
        train(model(), Contrast(), [], SETTINGS, device="cpu")
    with pytest.raises(InputError, match="every parameter of the model is frozen"):
        train(model().requires_grad_(False), Contrast(), ITEMS, SETTINGS, device="cpu")
    with pytest.raises(InputError, match="no batch could be made"):
        train(model(), Contrast(), ITEMS, replace(SETTINGS, steps=2), batches=lambda _epoch, _random: [], device="cpu")


@pytest.mark.parametrize(
    "wrong",
    [{"epochs": 0}, {"batch_size": 0}, {"chunk": 0}, {"learning_rate": 0.0}, {"warmup": 2.0}, {"seed": -1}],
)
def test_settings_out_of_range_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        TrainingSettings(**wrong)  # type: ignore[arg-type]
