"""The policy: a causal language model that writes plans, loaded by name or folder, asked for many plans at once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from langgraph_convcoa.errors import ModelError
from langgraph_convcoa.retrieval.progress import Progress, track
from langgraph_convcoa.training.planner.base_model import first_line, is_adapter, load_base, package
from langgraph_convcoa.training.planner.roomy import give_room, is_plain

Message = dict[str, str]
"""A chat message as `{"role", "content"}`."""
_ADAPTER = "adapter_config.json"


class Written(NamedTuple):
    """A text that a policy wrote, and the tokens of its prompt and of itself."""

    text: str
    prompt_tokens: int
    tokens: int


@dataclass(frozen=True)
class Policy:
    """A language model with its tokenizer, which has a chat template and a token to pad with.

    `name` is what it was loaded by.
    """

    name: str
    model: Any
    tokenizer: Any

    def prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of a chat that the model is to go on with."""
        encoded = self.tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, return_dict=True)
        return list(encoded["input_ids"])

    def write(
        self,
        prompts: Sequence[Sequence[Message]],
        *,
        max_new_tokens: int = 256,
        batch_size: int = 16,
        temperature: float = 0.0,
        seed: int = 0,
        progress: Progress = False,
    ) -> list[Written]:
        """A reply to each prompt: the most likely one, or one that is drawn, the same with the same seed.

        The tokens with which all prompts of a batch begin, most of them where prompts are made of one text, are read once.

        Args:
            prompts: Chats, n of them.
            max_new_tokens: Where a reply is cut off.
            batch_size: Replies written at a time.
            temperature: Of the draw; 0 takes the most likely token each time, 1 draws as training does.
            seed: Of the draw.
            progress: A bar, a callback or nothing.

        Returns:
            n replies.
        """
        asked = [self.prompt_ids(prompt) for prompt in prompts]
        # Prompts that begin alike stand together.
        order = sorted(range(len(asked)), key=lambda number: asked[number])
        found: dict[int, Written] = {}
        self.model.eval()
        torch.manual_seed(seed)
        drawing = {"do_sample": True, "temperature": temperature} if temperature else {"do_sample": False, "temperature": None}
        options = {**drawing, "top_p": None, "top_k": 0 if temperature else None, "max_new_tokens": max_new_tokens}
        with track(progress, len(asked), f"Planning with {Path(self.name).name}") as advance:
            for at in range(0, len(order), batch_size):
                numbers = order[at : at + batch_size]
                for number, ids in zip(numbers, self._continued([asked[n] for n in numbers], options), strict=True):
                    text = self.tokenizer.decode(ids, skip_special_tokens=True)
                    found[number] = Written(text, len(asked[number]), len(ids))
                advance(len(numbers))
        return [found[number] for number in range(len(asked))]

    @torch.inference_mode()
    def _continued(self, asked: Sequence[Sequence[int]], options: Mapping[str, Any]) -> list[list[int]]:
        shared = common_length(asked)
        width = max(map(len, asked))
        pad = self.tokenizer.pad_token_id
        # Padding stands between the common beginning and the rest, so that the beginning has the same place in every row.
        rows = [[*ids[:shared], *[pad] * (width - len(ids)), *ids[shared:]] for ids in asked]
        masks = [[*[1] * shared, *[0] * (width - len(ids)), *[1] * (len(ids) - shared)] for ids in asked]
        device = self.model.device
        inputs, mask = torch.tensor(rows, device=device), torch.tensor(masks, device=device)
        if shared:
            cache = self.model(inputs[:1, :shared], use_cache=True, logits_to_keep=1).past_key_values
            if is_plain(cache):
                room = width - shared + options["max_new_tokens"]
                give_room(cache, torch.zeros(len(rows), dtype=torch.long, device=device), room)
            else:
                cache.batch_repeat_interleave(len(rows))
            options = {**options, "past_key_values": cache}
        written = self.model.generate(inputs, attention_mask=mask, pad_token_id=pad, **options)
        ends = _ends(self.model, self.tokenizer)
        return [_until(row[width:].tolist(), ends) for row in written]


def load_policy(name: str | Path, *, device: str | None = None) -> Policy:
    """Load a causal language model by name or folder, or a trained planner's adapter with the model that it belongs to.

    Args:
        name: As for `load_base`, or an adapter's folder.
        device: "cpu", "cuda", ...; the CPU when None.

    Raises:
        InputError: It has no chat template.
        ModelError: It cannot be loaded.
    """
    check_policy(name)
    place = Path(name)
    if not is_adapter(place):
        model, tokenizer = load_base(name, dtype="float32")
        return Policy(str(name), model.to(device or "cpu"), tokenizer)
    try:
        base = str(json.loads((place / _ADAPTER).read_text(encoding="utf-8"))["base_model_name_or_path"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{place / _ADAPTER} is damaged ({error}): copy or train the planner again.") from error
    model, tokenizer = load_base(base, dtype="float32")
    try:
        model = package("peft").PeftModel.from_pretrained(model, str(place)).merge_and_unload()
    except (OSError, ValueError, RuntimeError) as error:
        # A missing or damaged file, or one that belongs to another model.
        raise ModelError(f"The adapter in {place} cannot be loaded over {base} ({first_line(error)}).") from error
    return Policy(str(name), model.to(device or "cpu"), tokenizer)


def check_policy(name: str | Path) -> None:
    """Raise ModelError where a name is that of a folder without a language model or an adapter; nothing is loaded."""
    place = Path(name)
    if place.exists() and not (is_adapter(place) or (place / "config.json").is_file()):
        raise ModelError(f"{place} holds no planner: name a folder of convcoa train-planner, or a language model.")


def common_length(rows: Sequence[Sequence[int]]) -> int:
    """How many tokens all rows begin with, leaving each at least one of its own.

    Example:
        >>> common_length([[5, 6, 7], [5, 6, 8, 9]]), common_length([[5, 6]]), common_length([[5], [5]])
        (2, 1, 0)
    """
    longest = min(map(len, rows)) - 1
    return next((n for n in range(longest) if len({row[n] for row in rows}) > 1), longest)


def _ends(model: Any, tokenizer: Any) -> set[int]:
    """The tokens that end a reply."""
    known = model.generation_config.eos_token_id
    return {tokenizer.eos_token_id, *(known if isinstance(known, list) else [known])} - {None}


def _until(ids: list[int], ends: set[int]) -> list[int]:
    """The tokens up to the one that ends the reply, which counts as written."""
    place = next((n for n, token in enumerate(ids) if token in ends), len(ids) - 1)
    return ids[: place + 1]
