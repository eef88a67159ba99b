"""Policies: loading, and the plans that they write many at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from langgraph_convcoa.errors import InputError, ModelError
from langgraph_convcoa.training.planner.policy import Policy, check_policy, load_policy
from tests.training.planner.tiny import tiny_policy

pytestmark = pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.*:FutureWarning")
CHATS = [
    [{"role": "user", "content": f"Break a question into an action chain. [Question]: {question}"}]
    for question in ("Who?", "When was the network described?", "Who painted The Scream in Oslo?", "Who?")
]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    return load_policy(tiny_policy(tmp_path_factory.mktemp("policy")))


@pytest.mark.parametrize("batch_size", [1, 3, 16])
def test_many_at_once_are_written_as_each_alone(policy: Policy, batch_size: int) -> None:
    written = policy.write(CHATS, max_new_tokens=12, batch_size=batch_size)
    for chat, one in zip(CHATS, written, strict=True):
        asked = policy.tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        alone = policy.model.generate(**asked, max_new_tokens=12, do_sample=False)[0, asked["input_ids"].shape[1] :]
        assert one.text == policy.tokenizer.decode(alone, skip_special_tokens=True)
        assert (one.prompt_tokens, one.tokens) == (asked["input_ids"].shape[1], len(alone))


def test_what_is_drawn_is_the_same_with_the_same_seed(policy: Policy) -> None:
    first, again, other = (policy.write(CHATS, max_new_tokens=12, temperature=1.0, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    # Equal prompts are drawn for apart.
    assert first[0].text != first[3].text


def test_no_prompt_is_no_reply(policy: Policy) -> None:
    assert policy.write([]) == []


def test_an_adapter_is_loaded_with_its_model(policy: Policy, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    lora = LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM")
    trained = get_peft_model(AutoModelForCausalLM.from_pretrained(policy.name), lora)
    trained.save_pretrained(tmp_path / "adapter")
    policy.tokenizer.save_pretrained(tmp_path / "adapter")
    of_adapter = load_policy(tmp_path / "adapter").write(CHATS, max_new_tokens=8)
    merged = Policy("merged", trained.merge_and_unload(), policy.tokenizer).write(CHATS, max_new_tokens=8)
    assert of_adapter == merged
    assert of_adapter != policy.write(CHATS, max_new_tokens=8)
    (tmp_path / "adapter" / "adapter_config.json").write_text("{")
    with pytest.raises(ModelError, match="is damaged"):
        load_policy(tmp_path / "adapter")


def test_what_is_no_planner_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear")
    for place in (tmp_path, tmp_path / "letter.txt"):
        with pytest.raises(ModelError, match="holds no planner"):
            check_policy(place)
    with pytest.raises(InputError, match="has no chat template"):
        load_policy(tiny_policy(tmp_path / "plain", chat=False))
