"""Loading of language models and of trained adapters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from langgraph_convcoa.errors import InputError, ModelError
from langgraph_convcoa.graph import build_graph
from langgraph_convcoa.reasoning.models import load_chat_model
from langgraph_convcoa.training.planner.grpo import load_planner
from tests.training.planner.tiny import Library, tiny_policy

pytest.importorskip("peft")
pytestmark = pytest.mark.filterwarnings("ignore:`(is_)?gradient_checkpointing` is deprecated:FutureWarning")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_policy(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def adapter(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter that changes what is said."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    model, tokenizer = load_planner(base)
    adapted: Any = get_peft_model(model, LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False))
    place = tmp_path_factory.mktemp("adapter")
    adapted.save_pretrained(place)
    tokenizer.save_pretrained(place)
    return place


def test_a_model_that_cannot_be_asked_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no chat template"):
        load_planner(tiny_policy(tmp_path / "plain", chat=False))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match="Cannot load the model"):
        load_planner(tmp_path / "empty")


@pytest.mark.slow
def test_an_adapter_is_loaded_merged_into_its_model(base: Path, adapter: Path) -> None:
    from peft import PeftModel

    ids = torch.arange(5, 25)[None]
    plain, _ = load_planner(base)
    merged, tokenizer = load_planner(adapter)
    with torch.no_grad():
        before = plain(ids).logits
        wanted = PeftModel.from_pretrained(plain, str(adapter)).eval()(ids).logits
        torch.testing.assert_close(merged.eval()(ids).logits, wanted)
    assert not torch.allclose(before, wanted)
    assert tokenizer.chat_template


@pytest.mark.slow
def test_a_graph_takes_an_adapter_of_a_local_model(base: Path, adapter: Path, tmp_path: Path) -> None:
    plain, adapted = (load_chat_model(f"huggingface:{base}", adapter=one, max_new_tokens=1) for one in (None, adapter))
    one, other = (dict(model.llm.pipeline.model.named_parameters()) for model in (plain, adapted))  # type: ignore[attr-defined]
    assert one.keys() == other.keys()
    assert not torch.equal(one["model.layers.0.mlp.up_proj.weight"], other["model.layers.0.mlp.up_proj.weight"])
    with pytest.raises(ModelError, match="holds no adapter"):
        build_graph(model=f"huggingface:{base}", adapter=tmp_path, retriever=Library())
    with pytest.raises(ModelError, match="adapter is for local models"):
        build_graph(model="openai:gpt-4.1-mini", adapter=adapter, retriever=Library())
    with pytest.raises(InputError, match="adapter needs a model"):
        build_graph(adapter=adapter, retriever=Library())


@pytest.mark.slow
def test_the_beginning_that_a_template_writes_is_not_written_twice(base: Path, tmp_path: Path) -> None:
    """Llama's tokenizers put a token in front of each text, and its template has that token too."""
    from tokenizers.processors import TemplateProcessing
    from transformers import AutoTokenizer

    model, tokenizer = load_planner(base)
    start = tokenizer.convert_tokens_to_ids("<|user|>")
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="<|user|> $A", special_tokens=[("<|user|>", start)])
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path)("Who?").input_ids[0] == start
    sent: list[list[int]] = []
    chat: Any = load_chat_model(f"huggingface:{tmp_path}", max_new_tokens=1)
    generate = chat.llm.pipeline.model.generate

    def seen(input_ids: Any, **named: Any) -> Any:
        sent.append(input_ids[0].tolist())
        return generate(input_ids=input_ids, **named)

    chat.llm.pipeline.model.generate = seen
    chat.invoke("Who?")
    wanted = tokenizer.apply_chat_template([{"role": "user", "content": "Who?"}], add_generation_prompt=True, return_dict=True)
    assert sent == [wanted["input_ids"]]
