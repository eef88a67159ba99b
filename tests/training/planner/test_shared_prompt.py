"""Prompts that are read once for a group: the same plans, log-probabilities and gradients as TRL's own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.training.planner.tiny import tiny_policy

pytest.importorskip("trl")
pytestmark = pytest.mark.slow


@pytest.fixture
def policy(tmp_path: Path) -> Any:
    from transformers import AutoModelForCausalLM
    from trl.trainer.utils import add_fused_lm_head

    model = AutoModelForCausalLM.from_pretrained(tiny_policy(tmp_path))
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    return model


def batch() -> tuple[torch.Tensor, torch.Tensor, int]:
    """Two prompts of different lengths, padded on the left, with three and one completions of 5 tokens or less."""
    torch.manual_seed(0)
    prompts = torch.randint(4, 400, (2, 9))
    ids = torch.cat([prompts[[0, 1, 0, 0]], torch.randint(4, 400, (4, 5))], dim=1)
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    mask[2, -2:] = 0
    return ids, mask, 5


def test_log_probabilities_and_gradients_are_the_same(policy: Any) -> None:
    from contextlib import nullcontext

    from trl import GRPOTrainer

    from langgraph_convcoa.training.planner.shared_prompt import SharedPromptTrainer

    accelerator = SimpleNamespace(num_processes=1, autocast=nullcontext, is_main_process=True)
    args = SimpleNamespace(gradient_checkpointing=False)
    found = {}
    for kind in (GRPOTrainer, SharedPromptTrainer):
        trainer = kind.__new__(kind)
        trainer.accelerator, trainer.args = accelerator, args
        trainer.use_vllm = trainer.use_transformers_continuous_batching = False
        ids, mask, kept = batch()
        policy.zero_grad()
        logs, entropies, _ = trainer._get_per_token_logps_and_entropies(policy, ids, mask, kept, compute_entropy=True)
        shown = mask[:, -kept:]
        (logs * shown).sum().backward()
        gradients = torch.cat([parameter.grad.flatten() for parameter in policy.parameters()])
        found[kind] = (logs * shown, entropies * shown, gradients)
    for one, other in zip(found[GRPOTrainer], found[SharedPromptTrainer], strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_what_is_sampled_is_the_same(policy: Any) -> None:
    from transformers import GenerationConfig

    from langgraph_convcoa.training.planner.shared_prompt import _reading_once

    ids, mask, kept = batch()
    ids, mask = ids[:, :-kept], mask[:, :-kept]
    settings = GenerationConfig(max_new_tokens=12, do_sample=True, top_k=0, pad_token_id=3, eos_token_id=0)
    drawn = []
    for shared in (False, True):
        torch.manual_seed(1)
        with torch.no_grad():
            if shared:
                with _reading_once(policy):
                    drawn.append(policy.generate(input_ids=ids, attention_mask=mask, generation_config=settings))
            else:
                drawn.append(policy.generate(input_ids=ids, attention_mask=mask, generation_config=settings))
    assert torch.equal(*drawn)
