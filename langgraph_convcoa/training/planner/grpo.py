"""Training of a planner on whole turns with TRL's `GRPOTrainer` (Pan et al. 2024b, appendix I; Shao et al. 2024)."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.errors import InputError, ModelError, check_least, first_line, require
from langgraph_convcoa.files import replacing_folder
from langgraph_convcoa.retrieval.progress import Progress
from langgraph_convcoa.training.planner.environment import Environment, mean_figures, playable
from langgraph_convcoa.training.trainer import Unfinished, board, run, writable

CONFIG, CURVE, PLANS = "planner.json", "training.jsonl", "plans.jsonl"


@dataclass(frozen=True)
class PlannerTraining:
    """Settings of a planner's training. Raises InputError if a number is out of range."""

    steps: int = 200  # Updates of the weights.
    questions: int = 4  # Questions in a step.
    group: int = 4  # Number of plans sampled for a question, to compare them with each other; 4 as in the paper.
    longest: int = 256  # Maximum number of tokens of a plan.
    learning_rate: float = 1e-5  # Learning rate of AdamW at the start; it falls linearly to 0.
    beta: float = 0.04  # Weight of the KL term.
    temperature: float = 1.0  # Temperature of the sampled plans.
    rank: int = 16  # Rank of LoRA.
    layers: int | None = None  # Number of the last layers that have LoRA; all layers when None.
    full: bool = False  # Train all weights instead of LoRA.
    vllm: bool = False  # Sample with vLLM in the same process.
    checkpoint_every: int = 10  # Steps between two checkpoints.
    seed: int = 0  # Seed of all random draws.

    def __post_init__(self) -> None:
        check_least(self, steps=1, questions=1, group=2, longest=8, rank=1, checkpoint_every=1, seed=0, beta=0)
        for name in ("learning_rate", "temperature"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} must be a number above 0, not {getattr(self, name)}.")


def check_planner_folder(out: str | Path, *, resume: bool = False) -> None:
    """Check the packages, the planner's folder and the unfinished training beside it, before anything is loaded."""
    require("training a planner", "grpo", "trl", "peft", "accelerate", "datasets")
    place = Path(out)
    if place.exists() and (not place.is_dir() or (any(place.iterdir()) and not (place / CONFIG).is_file())):
        raise ModelError(f"{place} holds other files: name an empty folder for the planner, or one with a planner.")
    Unfinished.beside(place).check(resume=resume)


def train_planner(
    queries: Sequence[Query],
    environment: Environment,
    model: str | Path,
    out: str | Path,
    settings: PlannerTraining | None = None,
    *,
    resume: bool = False,
    logs: str | Path | None = None,
    command: str = "",
    progress: Progress = False,
) -> list[dict[str, float]]:
    """Train the planner of a graph on whole turns with GRPO, and save it; returns the figures of every step.

    The folder gets LoRA weights (the whole model with `full`), `planner.json` (settings and `command`), `training.jsonl`
    (figures of each step) and `plans.jsonl` (sampled plans with their rewards). Queries without a known answer are left out.

    Raises:
        InputError: There is nothing to learn from, the model has no chat template, or the folder holds another training.
        ModelError: The model cannot be loaded, or a package is missing.
        RetrievalError: The planner or a checkpoint cannot be written.
        KeyboardInterrupt: Ctrl-C, after the current step and its checkpoint.
    """
    chosen, unfinished = settings or PlannerTraining(), Unfinished.beside(out)
    turns = playable(queries)
    check_planner_folder(out, resume=resume)

    async def prompts_of_turns() -> list[Any]:
        await environment.check(turns)
        return [await environment.prompt(turn.question, turn.history) for turn in turns]

    prompts = asyncio.run(prompts_of_turns())
    known = sha256(repr([prompts, [turn.references for turn in turns]]).encode("utf-8", "replace")).hexdigest()[:16]
    told = {"base": str(model), **asdict(chosen), "data": known, "command": command}
    told["reward"] = {name: value for name, value in asdict(environment.reward_settings).items() if not callable(value)}
    checkpoint = unfinished.begin(told, resume=resume)
    rows = [{"prompt": prompt, "turn": number} for number, prompt in enumerate(prompts)]
    trainer, tokenizer = _trainer(model, rows, chosen, unfinished, _reward_of(environment, turns, unfinished.folder / PLANS))
    for callback in board(logs):
        trainer.add_callback(callback)
    run(trainer, checkpoint, progress)
    curve = [row for row in trainer.state.log_history if "reward" in row]
    if trainer.accelerator.is_main_process:
        with writable(out), replacing_folder(out) as partial:
            trainer.accelerator.unwrap_model(trainer.model).save_pretrained(partial)
            tokenizer.save_pretrained(partial)
            (partial / CONFIG).write_text(json.dumps(told, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
            (partial / CURVE).write_text("".join(json.dumps(row) + "\n" for row in curve), encoding="utf-8")
            (partial / PLANS).write_bytes((unfinished.folder / PLANS).read_bytes())
        unfinished.remove()
    return curve


def load_planner(name: str | Path, *, dtype: str = "auto") -> tuple[Any, Any]:
    """A causal language model and its tokenizer, by name or folder; an adapter is merged into its model.

    Raises ModelError if the model cannot be loaded, and InputError if it has no chat template to ask it for a plan.
    """
    place, adapter = str(name), (Path(name) / "adapter_config.json").is_file()
    transformers = import_module("transformers")
    if adapter:
        require("an adapter", "grpo", "peft")
    loader = import_module("peft").AutoPeftModelForCausalLM if adapter else transformers.AutoModelForCausalLM
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(place, trust_remote_code=False)
        model = loader.from_pretrained(place, dtype=dtype, trust_remote_code=False)
    # The hub, the file formats and torch raise errors of many types.
    except Exception as error:
        fault = f"Cannot load the model {place!r} ({first_line(error)})"
        raise ModelError(f"{fault}: name a model of the hub, or a folder.") from error
    if not getattr(tokenizer, "chat_template", None):
        raise InputError(f"The model {place} has no chat template: name an instruction-tuned model.")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return (model.merge_and_unload() if adapter else model), tokenizer


def _reward_of(environment: Environment, turns: Sequence[Query], log: Path) -> Callable[..., Awaitable[list[float | None]]]:
    """Return the reward function for TRL, which plays the plans of a step. `turn` is a column of the data."""

    async def turn_reward(
        completions: Sequence[Any], turn: Sequence[int], trainer_state: Any, log_metric: Callable[[str, float], None], **_: Any
    ) -> list[float | None]:
        plans = [completion[-1]["content"] for completion in completions]
        rewards = await environment.rewards(plans, [turns[number] for number in turn])
        known = [reward for reward in rewards if reward is not None]
        if not known:
            raise InputError("No plan of this step could be rewarded: see the warnings above.")
        for name, value in mean_figures(known).items():
            log_metric(f"turn/{name}", value)
        log_metric("turn/unrewarded", 1 - len(known) / len(rewards))
        if trainer_state.is_world_process_zero:
            with log.open("a", encoding="utf-8") as stream:
                for number, plan, reward in zip(turn, plans, rewards, strict=True):
                    earned = {"reward": None} if reward is None else {"reward": reward.total, "fault": reward.fault}
                    row = {"step": trainer_state.global_step + 1, "id": turns[number].id, **earned, "plan": plan}
                    stream.write(json.dumps(row, ensure_ascii=False) + "\n")
        return [None if reward is None else reward.total for reward in rewards]

    turn_reward.__name__ = "turn"
    return turn_reward


def _trainer(
    model: str | Path, rows: list[Any], settings: PlannerTraining, unfinished: Unfinished, reward: Any
) -> tuple[Any, Any]:
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from trl import GRPOConfig, GRPOTrainer

    cuda = torch.cuda.is_available()
    # Weights that the optimiser changes are float32: bfloat16 loses small steps.
    policy, tokenizer = load_planner(model, dtype="auto" if cuda and not settings.full else "float32")
    targets: str | list[str] = "all-linear"
    if settings.layers is not None:
        depth = policy.config.get_text_config().num_hidden_layers
        last = [f".{n}." for n in range(max(0, depth - settings.layers), depth)]
        linear = [name for name, part in policy.named_modules() if isinstance(part, torch.nn.Linear)]
        targets = [name for name in linear if any(layer in name for layer in last)]
    lora = LoraConfig(r=settings.rank, lora_alpha=2 * settings.rank, target_modules=targets, task_type="CAUSAL_LM")
    arguments = GRPOConfig(
        output_dir=str(unfinished.folder),
        max_steps=settings.steps,
        per_device_train_batch_size=settings.questions * settings.group,
        num_generations=settings.group,
        max_completion_length=settings.longest,
        temperature=settings.temperature,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="linear",
        beta=settings.beta,
        bf16=cuda and torch.cuda.is_bf16_supported(),
        gradient_checkpointing=cuda,
        use_vllm=settings.vllm,
        vllm_mode="colocate",
        save_steps=settings.checkpoint_every,
        save_total_limit=1,
        logging_steps=1,
        report_to=[],
        use_cpu=not cuda,
        seed=settings.seed,
    )
    trainer = GRPOTrainer(
        model=policy,
        reward_funcs=reward,
        args=arguments,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        peft_config=None if settings.full else lora,
    )
    return trainer, tokenizer
