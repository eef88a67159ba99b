"""The language model of a planner."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from langgraph_convcoa.errors import InputError, ModelError, first_line


def require(*packages: str) -> None:
    """Raise ModelError if a package of the extra `grpo` is not installed; none is imported."""
    if missing := [name for name in packages if find_spec(name) is None]:
        raise ModelError(f'Training a planner needs {missing[0]}: pip install "langgraph-convcoa[grpo]".')


def load_planner(name: str | Path, *, dtype: str = "auto") -> tuple[Any, Any]:
    """A causal language model and its tokenizer, by name or folder; an adapter is merged into its model.

    Raises:
        InputError: The model has no chat template, so the graph cannot ask it for a plan.
        ModelError: The model cannot be loaded.
    """
    place, adapter = str(name), (Path(name) / "adapter_config.json").is_file()
    transformers = import_module("transformers")
    if adapter:
        require("peft")
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
