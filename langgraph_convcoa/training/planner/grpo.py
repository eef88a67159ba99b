"""Group relative policy optimisation of a planner on whole turns with TRL (Pan et al. 2024b, appendix I; Shao et al. 2024)."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.errors import InputError, ModelError
from langgraph_convcoa.files import replacing_folder
from langgraph_convcoa.training.interruption import interruptions
from langgraph_convcoa.training.planner.base_model import load_base, require, writing
from langgraph_convcoa.training.planner.reward import mean_figures
from langgraph_convcoa.training.planner.turn import Environment, playable
from langgraph_convcoa.training.planner.unfinished import (
    CONFIG,
    CURVE,
    PLANS,
    alone,
    check_same,
    clear,
    cut,
    holds_others,
    last_checkpoint,
    read_rows,
    step_of,
)

_log = logging.getLogger(__name__)
FORMAT, VERSION = "langgraph_convcoa planner", 1
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class PlannerTraining:
    """How a planner is trained; groups of four are the paper's.

    Attributes:
        steps: Updates of the weights.
        questions: Questions a step.
        group: Plans that are sampled for each, and compared with each other.
        longest: Tokens of a plan.
        learning_rate: The highest, of AdamW; it falls to 0 in a line.
        beta: Weight of the KL term, which holds the planner near the model that it began as.
        temperature: Of the sampled plans.
        rank: Of LoRA.
        layers: How many of the last layers have LoRA, all when None: the gradient need not go further down.
        full: Train all weights in place of LoRA.
        bf16: Compute in bfloat16; where there is a GPU that can when None.
        gradient_checkpointing: Less memory, more time; on a GPU when None.
        vllm: Sample with vLLM in the same process; where it is installed and there is a GPU when None.
        checkpoint_every: Steps between two checkpoints.
        seed: Of everything that is drawn.

    Raises:
        InputError: A number is out of range.

    Example:
        >>> PlannerTraining(group=1)
        Traceback (most recent call last):
        langgraph_convcoa.errors.InputError: group must be at least 2, not 1.
    """

    steps: int = 200
    questions: int = 4
    group: int = 4
    longest: int = 256
    learning_rate: float = 1e-5
    beta: float = 0.04
    temperature: float = 1.0
    rank: int = 16
    layers: int | None = None
    full: bool = False
    bf16: bool | None = None
    gradient_checkpointing: bool | None = None
    vllm: bool | None = None
    checkpoint_every: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        least = {"steps": 1, "questions": 1, "group": 2, "longest": 8, "rank": 1, "checkpoint_every": 1, "seed": 0, "beta": 0}
        for name, number in least.items():
            if not number <= getattr(self, name) < math.inf:
                raise InputError(f"{name} must be at least {number}, not {getattr(self, name)}.")
        for name in ("learning_rate", "temperature"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} must be a number above 0, not {getattr(self, name)}.")


@dataclass(frozen=True)
class PlannerJob:
    """Where a trained planner goes, and how its training is run."""

    out: Path
    resume: bool = False  # Resume an unfinished training into `out`.
    logs: Path | None = None  # Folder for TensorBoard.
    command: str = ""
    notify: Callable[[str], None] | None = None  # Told one line a step.

    @property
    def unfinished(self) -> Path:
        """The folder for the state of an unfinished training, beside the planner's."""
        return self.out.with_name(f"{self.out.resolve().name}.training")

    def check(self) -> None:
        """Check before anything is loaded: the packages, the planner's place, and what unfinished training is there."""
        require("trl", "peft", "accelerate", "datasets", *(["tensorboard"] if self.logs is not None else []))
        if not processes_of_training().is_main_process:
            # What the first process has made by now is no unfinished training.
            return
        if self.out.exists() and not self.out.is_dir():
            raise ModelError(f"A planner cannot be written to {self.out}: name a folder for it.")
        if self.out.is_dir() and any(self.out.iterdir()) and not (self.out / CONFIG).is_file():
            raise ModelError(f"{self.out} holds other files; name an empty folder for the planner, or one with a planner.")
        # Of a folder without a whole checkpoint nothing can be resumed: the next training takes it over.
        begun = (self.unfinished / CONFIG).is_file() and last_checkpoint(self.unfinished) is not None
        if begun and not self.resume:
            # One that is under way is not to be deleted.
            with alone(self.unfinished):
                raise InputError(
                    f"{self.unfinished} holds an unfinished training: resume it (--resume), or delete it to start again."
                )
        if not begun and holds_others(self.unfinished):
            raise InputError(f"{self.unfinished} holds other files than a training's: move them, or name another --out.")
        try:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.out.parent):
                pass
        except OSError as error:
            raise ModelError(
                f"The planner cannot be written to {self.out} ({error.strerror}): name another folder."
            ) from error


def train_planner(
    queries: Sequence[Query],
    environment: Environment,
    model: str | Path,
    job: PlannerJob,
    settings: PlannerTraining | None = None,
) -> list[dict[str, float]]:
    """Train the planner of a graph on whole turns, and save it where the job says.

    Args:
        queries: The turns, each with the data's earlier turns as its history; those without a known answer are left out. Where
            there are more than are trained on, as many as needed are drawn.
        environment: Plays and rewards the plans.
        model: A causal language model with a chat template, by name or folder; it is not changed. "smollm2" is the small one
            that ships as a package.
        job: Where the planner, and the state of an unfinished training, go.
        settings: How long, how fast, and what is trained.

    Returns:
        The figures of every step: the reward and its parts, rates, and times.

    Raises:
        InputError: No question has an answer, the documents hold none of them, the model has no chat template, an unfinished
            training is there that is not to be resumed or was started otherwise, or no plan of a step could be rewarded.
        ModelError: The model cannot be loaded, a package is missing, or the planner or a checkpoint cannot be written.
        KeyboardInterrupt: Ctrl-C, after the step under way and its checkpoint.
    """
    chosen = settings or PlannerTraining()
    turns = playable(queries)
    processes = processes_of_training()
    wanted = chosen.steps * chosen.questions * processes.num_processes
    if wanted < len(turns):
        turns = _order(turns, wanted, chosen.seed)
    job.check()
    with alone(job.unfinished) if processes.is_main_process else nullcontext():
        if processes.is_main_process:
            _prepare(job, _told(model, chosen, turns, environment, job) | {"processes": processes.num_processes})
        processes.wait_for_everyone()
        # All epochs as one, in an order of our own: TRL draws that of each epoch anew, which a resumed training would begin
        # again.
        rows = _order(asyncio.run(_rows(environment, turns)), wanted, chosen.seed)
        return _Run(environment, turns, chosen, job).go(rows, model)


def processes_of_training() -> Any:
    """The processes that train together."""
    from accelerate import PartialState
    from accelerate.utils import parse_flag_from_env

    return PartialState(cpu=parse_flag_from_env("ACCELERATE_USE_CPU"))


def _order(items: Sequence[_Item], wanted: int, seed: int) -> list[_Item]:
    """So many items, all of them in an order that is drawn before any is there again."""
    draws = random.Random(seed)  # noqa: S311 - a draw, not a secret
    order: list[_Item] = []
    while len(order) < wanted:
        order += draws.sample(items, len(items))
    return order[:wanted]


def _prepare(job: PlannerJob, told: dict[str, Any]) -> None:
    """The folder of the unfinished training: as it was at its last checkpoint where it is resumed, else new."""
    with writing(job.unfinished):
        if job.resume and (last := last_checkpoint(job.unfinished)) is not None:
            check_same(job.unfinished / CONFIG, told)
            for name in (CURVE, PLANS):
                cut(job.unfinished / name, step_of(last))
            return
        clear(job.unfinished)
        job.unfinished.mkdir(exist_ok=True)
        (job.unfinished / CONFIG).write_text(json.dumps(told), encoding="utf-8")


async def _rows(environment: Environment, turns: Sequence[Query]) -> list[dict[str, Any]]:
    await environment.check(turns)
    return [
        {"prompt": await environment.prompt(turn.question, turn.history), "turn": number} for number, turn in enumerate(turns)
    ]


class _Run:
    """One training under way."""

    def __init__(self, environment: Environment, turns: Sequence[Query], settings: PlannerTraining, job: PlannerJob) -> None:
        self.environment, self.turns, self.settings, self.job = environment, turns, settings, job
        self.curve: list[dict[str, float]] = []

    def go(self, rows: list[dict[str, Any]], model: str | Path) -> list[dict[str, float]]:
        import torch
        from datasets import Dataset
        from transformers import PrinterCallback, set_seed

        from langgraph_convcoa.training.planner.shared_prompt import SharedPromptTrainer

        cuda = torch.cuda.is_available()
        policy, tokenizer = load_base(model, dtype=_dtype(self.settings, cuda))
        # TRL draws the adapter before it sets its own seed.
        set_seed(self.settings.seed)
        with interruptions() as interrupted:
            trainer = SharedPromptTrainer(
                model=policy,
                reward_funcs=self.reward,
                args=_arguments(self.settings, self.job, cuda),
                train_dataset=Dataset.from_list(rows),
                processing_class=tokenizer,
                peft_config=None if self.settings.full else _lora(self.settings, policy),
                callbacks=[_watcher(self, interrupted)],
            )
            # It prints every row, which the watcher tells in a line.
            trainer.remove_callback(PrinterCallback)
            last = last_checkpoint(self.job.unfinished) if self.job.resume else None
            if last is not None:
                self.curve = read_rows(self.job.unfinished / CURVE)
            try:
                trainer.train(resume_from_checkpoint=None if last is None else str(last))
            except OSError:
                with writing(self.job.unfinished, ", then --resume"):
                    raise
            if trainer.state.global_step >= self.settings.steps and trainer.accelerator.is_main_process:
                self._save(trainer, tokenizer, model)
            trainer.accelerator.wait_for_everyone()
        return self.curve

    async def reward(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        turn: Sequence[int],
        trainer_state: Any,
        log_metric: Callable[[str, float], None],
        **_others: Any,
    ) -> list[float | None]:
        """TRL's reward function: one number a completion, None for one that could not be rewarded."""
        begin = perf_counter()
        plans = [completion[-1]["content"] for completion in completions]
        rewards = await self.environment.rewards(plans, [self.turns[number] for number in turn])
        known = [reward for reward in rewards if reward is not None]
        if not known:
            raise InputError("No plan of this step could be rewarded: see the warnings above for why.")
        for name, value in mean_figures(known).items():
            log_metric(f"turn/{name}", value)
        log_metric("turn/unrewarded", 1 - len(known) / len(rewards))
        log_metric("seconds/turns", perf_counter() - begin)
        if trainer_state.is_world_process_zero:
            with (self.job.unfinished / PLANS).open("a", encoding="utf-8") as stream:
                for number, plan, reward in zip(turn, plans, rewards, strict=True):
                    told: dict[str, Any] = (
                        {"reward": None} if reward is None else {"reward": reward.total, "fault": reward.fault}
                    )
                    row = {"step": trainer_state.global_step + 1, "id": self.turns[number].id, **told, "plan": plan}
                    stream.write(json.dumps(row, ensure_ascii=False) + "\n")
        return [None if reward is None else reward.total for reward in rewards]

    def _save(self, trainer: Any, tokenizer: Any, model: str | Path) -> None:
        told = json.loads((self.job.unfinished / CONFIG).read_text(encoding="utf-8"))
        with writing(self.job.out, ", then --resume"), replacing_folder(self.job.out) as partial:
            trainer.accelerator.unwrap_model(trainer.model).save_pretrained(partial)
            tokenizer.save_pretrained(partial)
            (partial / CONFIG).write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
            (partial / CURVE).write_text("".join(json.dumps(row) + "\n" for row in self.curve), encoding="utf-8")
            shutil.copy(self.job.unfinished / PLANS, partial / PLANS)
        with suppress(OSError):
            clear(self.job.unfinished)


def _watcher(run: _Run, interrupted: Callable[[], bool]) -> Any:
    """Writes the figures of every step, and ends the training after the step in which Ctrl-C came."""
    from transformers import TrainerCallback

    class Watcher(TrainerCallback):
        writer: Any = None

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if run.job.logs is not None and state.is_world_process_zero:
                from torch.utils.tensorboard import SummaryWriter

                self.writer = SummaryWriter(str(run.job.logs), purge_step=state.global_step + 1 if state.global_step else None)

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if interrupted():
                control.should_save = control.should_training_stop = True

        def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
            if not logs or "reward" not in logs or not state.is_world_process_zero:
                return
            row = {"step": float(state.global_step), **{n: float(v) for n, v in logs.items() if isinstance(v, int | float)}}
            run.curve.append(row)
            with (run.job.unfinished / CURVE).open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(row) + "\n")
            for name, value in row.items():
                if self.writer is not None:
                    self.writer.add_scalar(name, value, state.global_step)
            if run.job.notify is not None:
                run.job.notify(_line(row, run.settings.steps))

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if self.writer is not None:
                self.writer.close()

    return Watcher()


def _line(row: dict[str, float], steps: int) -> str:
    shown = {
        "reward": "reward",
        "malformed": "turn/malformed",
        "retrievals": "turn/retrievals",
        "declined": "turn/declined_rate",
        "tokens": "completions/mean_length",
        "equal groups": "frac_reward_zero_std",
        "seconds": "step_time",
    }
    told = ", ".join(f"{name} {row[key]:.2f}" for name, key in shown.items() if key in row)
    return f"step {row['step']:.0f} of {steps}: {told}"


def _dtype(settings: PlannerTraining, cuda: bool) -> str:
    """Of the weights: what an optimiser changes is float32, since bfloat16 loses small steps; what is frozen is as it came."""
    return "auto" if cuda and not settings.full and settings.bf16 is not False else "float32"


def _arguments(settings: PlannerTraining, job: PlannerJob, cuda: bool) -> Any:
    import torch
    from trl import GRPOConfig

    bf16 = settings.bf16 if settings.bf16 is not None else cuda and torch.cuda.is_bf16_supported()
    checkpointing = settings.gradient_checkpointing if settings.gradient_checkpointing is not None else cuda
    return GRPOConfig(
        output_dir=str(job.unfinished),
        max_steps=settings.steps,
        per_device_train_batch_size=settings.questions * settings.group,
        num_generations=settings.group,
        max_completion_length=settings.longest,
        temperature=settings.temperature,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=0,
        beta=settings.beta,
        scale_rewards="group",
        bf16=bf16,
        gradient_checkpointing=checkpointing,
        use_vllm=_uses_vllm(settings, cuda),
        vllm_mode="colocate",
        save_strategy="steps",
        save_steps=settings.checkpoint_every,
        save_total_limit=2,
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
        shuffle_dataset=False,
        use_cpu=not cuda,
        seed=settings.seed,
        data_seed=settings.seed,
    )


def _uses_vllm(settings: PlannerTraining, cuda: bool) -> bool:
    if settings.vllm is None:
        from trl.import_utils import is_vllm_available

        return bool(cuda and is_vllm_available())
    if settings.vllm:
        try:
            import vllm  # noqa: F401
        except ImportError as error:
            raise ModelError(f"vLLM is not installed ({error}): pip install vllm, or train without --vllm.") from error
    return settings.vllm


def _lora(settings: PlannerTraining, model: Any) -> Any:
    import re

    from peft import LoraConfig
    from torch import nn

    targets: str | list[str] = "all-linear"
    if settings.layers is not None:
        first = model.config.get_text_config().num_hidden_layers - settings.layers
        linear = [name for name, part in model.named_modules() if isinstance(part, nn.Linear)]
        targets = [name for name in linear if (found := re.search(r"\.(\d+)\.", name)) and int(found[1]) >= first]
    return LoraConfig(r=settings.rank, lora_alpha=2 * settings.rank, target_modules=targets, task_type="CAUSAL_LM")


def _told(
    model: str | Path, settings: PlannerTraining, turns: Sequence[Query], environment: Environment, job: PlannerJob
) -> dict[str, Any]:
    """What a planner's folder tells of its training, and what a training must have in common with the one that it resumes."""
    import hashlib

    asked = hashlib.sha256("\n".join(f"{turn.id} {turn.question} {turn.references}" for turn in turns).encode()).hexdigest()
    reward = {
        name: value if isinstance(value, int | float | str) else getattr(value, "__qualname__", type(value).__name__)
        for name, value in vars(environment.reward_settings).items()
    }
    base = str(Path(model).resolve()) if Path(model).is_dir() else str(model)
    earlier = hashlib.sha256("\n".join(str(turn.history) for turn in turns).encode("utf-8", "surrogatepass")).hexdigest()
    told = {"format": FORMAT, "version": VERSION, "base": base, "training": asdict(settings), "reward": reward}
    data = {"turns": len(turns), "data": asked[:16], "histories": earlier[:16], **environment.told()}
    found: dict[str, Any] = json.loads(json.dumps({**told, **data, "command": job.command}, default=str))
    return found
