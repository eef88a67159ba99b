"""A warm start of a planner: supervised training on plans of a stronger model whose turns earned their reward.

A small model that writes no plan that can be played earns the same for everything, and reinforcement learning has nothing to
go by. It is first shown plans of another model, each kept only where the turn that it led to, played over the same graph,
earned enough (rejection sampling).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from langgraph_convcoa.chain import ActionChain
from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.errors import InputError, ModelError
from langgraph_convcoa.files import replacing_folder
from langgraph_convcoa.training.planner.base_model import load_base, package, writing
from langgraph_convcoa.training.planner.policy import Message, Policy, common_length
from langgraph_convcoa.training.planner.reward import TurnReward
from langgraph_convcoa.training.planner.turn import Environment, key_of

_log = logging.getLogger(__name__)
_CARD = "warm_start.json"
LEAST_REWARD = 0.5
"""What an answer that matches earns at least, unless much was looked up; not a guess that holds beside a wrong answer."""


@dataclass(frozen=True)
class Shown:
    """A plan of a stronger model for a turn."""

    turn: Query
    plan: str


@dataclass(frozen=True)
class Earned:
    """A plan that earned its reward, with the prompt that asks for it."""

    turn: Query
    plan: str
    prompt: tuple[Message, ...]
    reward: TurnReward


@dataclass(frozen=True)
class WarmStartSettings:
    """How a planner is warm-started.

    Attributes:
        epochs: How often each plan is seen.
        steps: So many batches instead.
        batch_size: Plans a step.
        learning_rate: The highest; of LoRA, a full training wants a tenth of it.
        rank: Of LoRA on all linear layers; 0 trains all weights.
        seed: Of the order and of LoRA's beginning.

    Raises:
        InputError: A number is out of its range.
    """

    epochs: int = 3
    steps: int | None = None
    batch_size: int = 4
    learning_rate: float = 5e-4
    rank: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("batch_size", 1), ("rank", 0), ("steps", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise InputError(f"{name} must be at least {least}, not {value}.")
        if not 0 < self.learning_rate < 1:
            raise InputError(f"learning_rate must be between 0 and 1, not {self.learning_rate}.")


def read_plans(path: str | Path, turns: Sequence[Query]) -> list[Shown]:
    """Plans from a file of JSON lines, each with its turn.

    A line is `{"id", "plan"}`, whose id is that of one of the turns, or `{"question", "history", "plan"}` with the question
    and the earlier turns as in the data. Lines of other turns, such as held-out ones, are left out.

    Raises:
        InputError: There is no such file, a line is no such object, or none is of a turn.
    """
    try:
        # By line feeds alone: a text may hold other separators of lines.
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} cannot be read as plans: name a file of JSON lines, or a run of convcoa evaluate qa."
        ) from error
    by_id = {turn.id: turn for turn in turns}
    by_words = {_words(turn.question, turn.history): turn for turn in turns}
    found, left_out = [], 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            plan = row["plan"]
            turn = by_id.get(row["id"]) if "id" in row else by_words.get(_words(row["question"], row.get("history") or ()))
            if not isinstance(plan, str):
                plan = json.dumps(plan, ensure_ascii=False)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(f'{path}, line {number}, is no {{"id" or "question", "plan"}}: mend it.') from error
        if turn is None:
            left_out += 1
        else:
            found.append(Shown(turn, plan))
    if not found:
        raise InputError(f"None of the {left_out} plans in {path} is for a question of the data's training part.")
    if left_out:
        _log.info("%d plans of %s are for other questions and are left out", left_out, path)
    return found


def plan_text(chain: ActionChain) -> str:
    """A plan as the prompt asks for it, on one line.

    Example:
        >>> print(plan_text(ActionChain(optimized_question="Who?", draft_answer="Ada.")))
        {"optimized_question": "Who?", "chain": [], "final_answer": "Ada."}
    """
    steps = [
        {
            "action": node.action,
            "sub": node.sub_question,
            "guess_answer": "" if node.is_missing else node.guess_answer,
            "missing_flag": node.is_missing,
            "action_input": node.action_input,
        }
        for node in chain.nodes
    ]
    plan = {"optimized_question": chain.optimized_question, "chain": steps, "final_answer": chain.draft_answer}
    return json.dumps(plan, ensure_ascii=False)


async def earned(
    shown: Sequence[Shown], environment: Environment, *, least: float = LEAST_REWARD, best: int = 1
) -> list[Earned]:
    """The plans that earned at least so much, for each turn the best ones, each once.

    Raises:
        InputError: No plan did.
    """
    rewards = await environment.rewards([one.plan for one in shown], [one.turn for one in shown])
    of_turns: dict[str, list[tuple[float, Shown, TurnReward]]] = {}
    for one, reward in zip(shown, rewards, strict=True):
        if reward is not None and not reward.fault and reward.total >= least:
            of_turns.setdefault(key_of(one.turn), []).append((reward.total, one, reward))
    if not of_turns:
        totals = [reward.total for reward in rewards if reward is not None]
        most = f"the best earned {max(totals):.2f}" if totals else "none could be played"
        faults = sum(bool(reward.fault) for reward in rewards if reward is not None)
        raise InputError(
            f"None of the {len(shown)} plans earned {least:g} ({most}; {faults} are not of the form asked for): lower the "
            "threshold, or take plans of a stronger model."
        )
    kept = []
    for found in of_turns.values():
        distinct = {one.plan: (one, reward) for _, one, reward in sorted(found, key=lambda entry: entry[0])}
        for one, reward in list(distinct.values())[::-1][:best]:
            prompt = await environment.prompt(one.turn.question, one.turn.history)
            kept.append(Earned(one.turn, one.plan, tuple(prompt), reward))
    return kept


def warm_start(
    model: str | Path,
    plans: Sequence[Earned],
    out: str | Path,
    settings: WarmStartSettings | None = None,
    *,
    device: str | None = None,
    told: Mapping[str, Any] | None = None,
    log: bool = False,
) -> list[float]:
    """Train a model on plans and write it, LoRA merged in, as a folder to go on from.

    The loss is that of the plan and of the end of the turn; the prompt has none.

    Args:
        model: A causal language model of Hugging Face, by name or folder; it is not changed.
        plans: What `earned` kept.
        out: Folder of the trained model.
        settings: How long and how fast.
        device: "cpu", "cuda", ...; chosen when None.
        told: What else is to stand in `warm_start.json`, beside the settings.
        log: Print losses as they come.

    Returns:
        The loss at each step.

    Raises:
        InputError: There is no plan, or the model has no chat template.
        ModelError: The model cannot be loaded or written, or TRL is missing.
    """
    if not plans:
        raise InputError("There is no plan to learn from.")
    chosen = settings or WarmStartSettings()
    check_model_folder(out)
    policy = Policy(str(model), *load_base(model, dtype="float32"))
    trainer = _trainer(policy, plans, chosen, device, log)
    trainer.train()
    trained = trainer.accelerator.unwrap_model(trainer.model)
    trained = trained.merge_and_unload() if chosen.rank else trained
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    card = {"base": str(model), "plans": len(plans), "settings": asdict(chosen), **(told or {}), "losses": losses}
    if trainer.accelerator.is_main_process:
        save_model(Policy(str(out), trained, policy.tokenizer), out, card)
    return losses


def check_model_folder(folder: str | Path) -> None:
    """Raise ModelError where a folder can hold no warm-started model, since it is a file or holds other things."""
    place = Path(folder)
    if place.name in ("", "..") or (place.exists() and not place.is_dir()):
        raise ModelError(f"A model cannot be written to {place}: name a folder for it.")
    if place.is_dir() and any(place.iterdir()) and not (place / _CARD).is_file():
        raise ModelError(f"{place} holds other files; name an empty folder for the model, or one with a warm-started model.")


def save_model(policy: Policy, folder: str | Path, card: Mapping[str, Any]) -> None:
    """Write a model with its tokenizer and a card, all at once or not at all; ModelError where that fails."""
    with writing(folder), replacing_folder(folder) as partial:
        policy.model.save_pretrained(partial)
        policy.tokenizer.save_pretrained(partial)
        (partial / _CARD).write_text(json.dumps(card, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _words(question: str, history: Sequence[Sequence[str]]) -> tuple[str, ...]:
    return (question.strip(), *(text.strip() for pair in history for text in pair))


def _trainer(policy: Policy, plans: Sequence[Earned], settings: WarmStartSettings, device: str | None, log: bool) -> Any:
    import tempfile

    trl, peft = package("trl"), package("peft")

    class Trainer(trl.SFTTrainer):  # type: ignore[misc,name-defined]
        """Reads the beginning that all prompts of a batch share once."""

        def compute_loss(
            self, model: Any, inputs: Mapping[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
        ) -> Any:
            return _shared_loss(model, inputs, num_items_in_batch)

    options = trl.SFTConfig(
        # Nothing is written there: a warm start is short, and begins again.
        output_dir=tempfile.gettempdir(),
        save_strategy="no",
        report_to="none",
        per_device_train_batch_size=settings.batch_size,
        num_train_epochs=settings.epochs,
        max_steps=settings.steps or -1,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=0.1,
        weight_decay=0.0,
        max_length=None,
        completion_only_loss=True,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=device == "cpu",
        seed=settings.seed,
        # Prompts of one template are alike in length: batches of them share more.
        train_sampling_strategy="group_by_length",
        logging_steps=1,
        disable_tqdm=True,
        log_level="error",
    )
    rows = [{"prompt": list(one.prompt), "completion": [{"role": "assistant", "content": one.plan}]} for one in plans]
    lora = (
        peft.LoraConfig(r=settings.rank, lora_alpha=2 * settings.rank, target_modules="all-linear") if settings.rank else None
    )
    trainer = Trainer(
        model=policy.model,
        args=options,
        train_dataset=package("datasets").Dataset.from_list(rows),
        processing_class=policy.tokenizer,
        peft_config=lora,
    )
    if not log:
        from transformers import PrinterCallback

        trainer.remove_callback(PrinterCallback)
    return trainer


def _shared_loss(model: Any, inputs: Mapping[str, Any], items: Any = None) -> Any:
    """Cross-entropy of the labelled tokens, over batches whose rows are padded on the right.

    The tokens that all rows begin with are read once, and their keys and values repeated: the same loss and gradients in a
    fraction of the time, for the instructions are most of a prompt.
    """
    from torch.nn.functional import cross_entropy

    ids, mask, labels = inputs["input_ids"], inputs["attention_mask"], inputs["labels"]
    # What is read from here on predicts the first token of the earliest plan.
    first = int((labels != -100).int().argmax(dim=1).min()) - 1
    shared = min(common_length(ids.tolist()), first)
    options: dict[str, Any] = {}
    if shared:
        cache = model(input_ids=ids[:1, :shared], use_cache=True, logits_to_keep=1).past_key_values
        cache.batch_repeat_interleave(len(ids))
        options["past_key_values"] = cache
    kept = ids.shape[1] - first
    logits = model(input_ids=ids[:, shared:], attention_mask=mask, logits_to_keep=kept, **options).logits
    wanted = labels[:, first + 1 :]
    total = cross_entropy(logits[:, :-1].flatten(0, 1).float(), wanted.flatten(), ignore_index=-100, reduction="sum")
    return total / ((wanted != -100).sum() if items is None else items)
