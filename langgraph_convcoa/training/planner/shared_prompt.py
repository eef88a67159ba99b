"""GRPO with each prompt read once: the completions of a group share its keys and values, in sampling and in the gradient.

A plan's prompt is several times as long as the plan, so that reading it for every completion of a group would be most of a
step. Log-probabilities and gradients are the same as without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers.cache_utils import DynamicCache
from trl import GRPOTrainer

from langgraph_convcoa.training.planner.base_model import writing
from langgraph_convcoa.training.planner.roomy import give_room, is_plain


class SharedPromptTrainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's trainer, which reads a prompt that several completions have in common once.

    On several processes, with gradient checkpointing, or with another sampler (vLLM), it is TRL's as it is.
    """

    @property
    def shares(self) -> bool:
        """Whether prompts are read once."""
        several = self.accelerator.num_processes > 1
        return not (several or self.args.gradient_checkpointing or self.use_vllm or self.use_transformers_continuous_batching)

    def create_model_card(self, *_given: Any, **_named: Any) -> None:
        """None at a checkpoint."""

    def _save_checkpoint(self, *given: Any, **named: Any) -> None:
        with writing(self.args.output_dir, ", then --resume"):
            super()._save_checkpoint(*given, **named)

    def _generate_single_turn(self, *given: Any, **named: Any) -> Any:
        with _reading_once(self.model) if self.shares else nullcontext():
            return super()._generate_single_turn(*given, **named)

    def _get_per_token_logps_and_entropies(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        compute_aux_loss: bool = False,
        **pictures: Any,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        prompt = input_ids.size(1) - logits_to_keep
        first, of_row = _distinct(input_ids[:, :prompt], attention_mask[:, :prompt])
        whole = batch_size is None or batch_size >= len(input_ids)
        if not self.shares or not whole or compute_aux_loss or len(first) == len(input_ids):
            found: tuple[Tensor, Tensor | None, Tensor | None] = super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, batch_size, compute_entropy, compute_aux_loss, **pictures
            )
            return found
        logs: list[Tensor] = []
        entropies: list[Tensor] = []
        places = [(of_row == kind).nonzero().flatten() for kind in range(len(first))]
        with self.accelerator.autocast():
            for rows in places:
                outputs = _of_group(model, input_ids[rows], attention_mask[rows], prompt)
                # What is left out behind the longest completion of a group is padding.
                missing = (0, logits_to_keep - outputs.log_probs.size(1))
                logs.append(functional.pad(outputs.log_probs, missing))
                if compute_entropy:
                    entropies.append(functional.pad(outputs.entropy, missing))
        back = torch.cat(places).argsort()
        return torch.cat(logs)[back], torch.cat(entropies)[back] if compute_entropy else None, None


def _of_group(model: Any, ids: Tensor, mask: Tensor, prompt: int) -> Any:
    """What the fused head tells of each completion of one prompt, up to the longest, all in the gradient."""
    begin = int(mask[0, :prompt].argmax())
    end = prompt + int(mask[:, prompt:].sum(1).max())
    ids, mask = ids[:, begin:end], mask[:, begin:end]
    # The last token of the prompt goes with the completion, whose first token it tells.
    known = prompt - begin - 1
    cache = DynamicCache(config=model.config)
    if known:
        model(input_ids=ids[:1, :known], past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache.batch_repeat_interleave(len(ids))
    labels = ids[:, known:].masked_fill(mask[:, known:] == 0, -100)
    return model(input_ids=ids[:, known:], attention_mask=mask, past_key_values=cache, labels=labels, fused_lm_head=True)


def _distinct(ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The first row of each kind, and of each row which kind it is."""
    kinds, of_row = torch.unique(torch.cat([ids, mask], dim=1), dim=0, return_inverse=True)
    places = torch.arange(len(ids), device=ids.device)
    first = torch.full((len(kinds),), len(ids), device=ids.device).scatter_reduce(0, of_row, places, "amin")
    return first, of_row


@contextmanager
def _reading_once(model: Any) -> Iterator[None]:
    """Let a model's `generate` read equal prompts once."""
    model.generate = partial(_generate, model, model.generate)
    try:
        yield
    finally:
        del model.generate


def _generate(
    model: Any,
    generate: Callable[..., Tensor],
    *,
    input_ids: Tensor,
    attention_mask: Tensor,
    generation_config: Any,
    **more: Any,
) -> Tensor:
    cache = DynamicCache(config=model.config)
    if not is_plain(cache) or input_ids.size(1) < 2 or generation_config.max_new_tokens is None:
        return generate(input_ids=input_ids, attention_mask=attention_mask, generation_config=generation_config, **more)
    first, of_row = _distinct(input_ids, attention_mask)
    seen = attention_mask[first, :-1]
    model(
        input_ids=input_ids[first, :-1],
        attention_mask=seen,
        position_ids=(seen.cumsum(-1) - 1).clamp(min=0),
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    give_room(cache, of_row, generation_config.max_new_tokens + 1)
    return generate(
        input_ids=input_ids,
        attention_mask=attention_mask,
        past_key_values=cache,
        generation_config=generation_config,
        **more,
    )
