"""The default encoder: a sentence-transformers model, loaded when it is first needed."""

from __future__ import annotations

import hashlib
import logging
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np

from langgraph_convcoa.errors import InputError, RetrievalError, check_least, first_line, one_of
from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER, Encoder, Vectors, cores, normalised
from langgraph_convcoa.retrieval.encoders.bert import DEFAULT_NAMES, Bert, bert_of, resolved, snapshot

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer

Dtype = Literal["int8", "float32"]
DTYPES: tuple[Dtype, ...] = get_args(Dtype)
_AT_ONCE = 1024
# transformers loads torchao and bitsandbytes if they are installed.
_LOUD = ("transformers", "sentence_transformers", "huggingface_hub", "torchao", "bitsandbytes", "torch.utils._pytree")


class SentenceTransformerEncoder(Encoder):
    """Encode with a sentence-transformers model.

    The model is loaded on first use; threads may share an encoder. On a CPU, onnxruntime computes a BERT with mean or CLS
    pooling. torch (sentence-transformers) computes other models, models on other devices, and any model once `model` is used.

    Args:
        name: Folder or hub name of the model; the default, all-MiniLM-L6-v2, comes with the extra `offline`.
        device: "cpu", "cuda", ...; chosen by sentence-transformers when None.
        batch_size: Texts in a forward pass of torch.
        dtype: With "int8", onnxruntime encodes passages in eight bits (`OnnxBert`). That is about twice as fast as "float32",
            and the vectors of both have a mean cosine of 0.999. Questions and models in torch always have float32.

    Raises:
        InputError: A setting has an invalid value.
        RetrievalError: On first use, if the model cannot be loaded.

    Example:
        >>> SentenceTransformerEncoder("some/model", dtype="float32")
        SentenceTransformerEncoder('some/model', dtype='float32')
    """

    def __init__(
        self, name: str = DEFAULT_ENCODER, device: str | None = None, batch_size: int = 32, dtype: Dtype | str = "int8"
    ) -> None:
        self.model_name, self.device, self.batch_size = name, device, batch_size
        check_least(self, batch_size=1)
        self.dtype: Dtype = one_of("dtype", dtype, DTYPES)
        self._model: SentenceTransformer | None = None
        # For torch: a fast tokenizer keeps its truncation as state, so one thread encodes at a time.
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"SentenceTransformerEncoder({self.model_name!r}, dtype={self.dtype!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy loads the model again when it needs it, without weights that were trained here and not saved.
        return type(self), (self.model_name, self.device, self.batch_size, self.dtype)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # Threads may share an encoder, so copies share it too.
        return self

    @cached_property
    def name(self) -> str:
        """Model, revision, dtype and length; the same on every machine."""
        return f"{self._identity()}|{self.dtype}|{self.max_tokens}"

    @property
    def model(self) -> SentenceTransformer:
        """The model in torch, loaded on first use; gradients flow through it.

        After training the model, save it with `save_pretrained(folder)` and open an encoder of that folder: this encoder keeps
        its old `name`.
        """
        # The first check takes no lock: encoding in another thread holds it.
        if self._model is None:
            with self._lock:
                if self._model is None:
                    self._model = load_model(self.model_name, self.device)
        return self._model

    def save(self, folder: str | Path) -> None:
        """Removed."""
        raise InputError("SentenceTransformerEncoder.save was removed; use encoder.model.save_pretrained(folder).")

    @property
    def dimension(self) -> int:
        if (bert := self._onnx()) is not None:
            return bert.dimension
        model = self.model
        # The method was renamed between releases of sentence-transformers.
        method = getattr(model, "get_embedding_dimension", None) or model.get_sentence_embedding_dimension
        return int(method() or 0)

    @property
    def max_tokens(self) -> int:
        if (bert := self._onnx()) is not None:
            return bert.max_tokens
        return int(self.model.max_seq_length or 512)

    def count_tokens(self, text: str) -> int:
        return self.count_tokens_batch([text])[0]

    def count_tokens_batch(self, texts: Sequence[str]) -> list[int]:
        # The texts are encoded in parts: an encoding takes many times the memory of its text.
        parts = (texts[start : start + _AT_ONCE] for start in range(0, len(texts), _AT_ONCE))
        return [len(encoding.ids) for part in parts for encoding in self._counter.encode_batch_fast(list(part))]

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        if (bert := self._onnx()) is not None:
            # Questions are encoded in float32, with all threads on one product.
            rows = bert.network(int8=False, threads=cores()).recent_vectors(bert.token_ids(texts))
            return normalised(rows, len(texts), bert.dimension, self.model_name)
        return self._encode_in_torch(texts, "encode_query")

    def encode_passages(self, texts: Sequence[str]) -> Vectors:
        if (bert := self._onnx()) is not None:
            # Passages are encoded in eight bits if the dtype says so, with one thread for each batch.
            network = bert.network(int8=self.dtype == "int8")
            parts = [texts[start : start + _AT_ONCE] for start in range(0, len(texts), _AT_ONCE)]
            rows = [network.vectors(bert.token_ids(part)) for part in parts or [[]]]
            return normalised(np.concatenate(rows), len(texts), bert.dimension, self.model_name)
        return self._encode_in_torch(texts, "encode_document")

    def _encode_in_torch(self, texts: Sequence[str], method: str) -> Vectors:
        with self._lock:
            rows = getattr(self.model, method)(list(texts), batch_size=self.batch_size, show_progress_bar=False)
        return normalised(rows, len(texts), self.dimension, self.model_name)

    def _onnx(self) -> Bert | None:
        """The model for onnxruntime; None if torch computes it (another kind of model or device, or loaded in torch)."""
        return self._bert if self._model is None else None

    @cached_property
    def _counter(self) -> Tokenizer:
        if (bert := self._onnx()) is not None:
            return bert.tokenizer
        with self._lock:
            return counting_copy(self.model)

    @cached_property
    def _bert(self) -> Bert | None:
        return bert_of(self.model_name, self.device)

    def _identity(self) -> str:
        """The model's name and revision on the hub; for a folder, a hash of its files."""
        if self.model_name in DEFAULT_NAMES:
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
        found = snapshot(self.model_name)
        revision = getattr(_config(self.model), "_commit_hash", None) if found is None else found.name
        return f"{self.model_name}@{revision}"


def load_model(name: str, device: str | None) -> SentenceTransformer:
    """Load the model of a name or folder. The default model is taken from the extra `offline` if that is installed."""
    try:
        with quiet():
            from sentence_transformers import SentenceTransformer

            model = SentenceTransformer(resolved(name), device=device)
    # The hub, the file formats and torch raise many types.
    except Exception as error:
        remedy = 'pip install "langgraph-convcoa[offline]" or give an encoder'
        raise RetrievalError(f"The encoder {name!r} cannot be loaded ({first_line(error)}): {remedy}.") from error
    if getattr(_config(model), "convcoa_attention", "softmax") != "softmax":
        raise RetrievalError(f"The encoder {name!r} was trained with OutEffHop's attention; use it with experiments/encoder.")
    return model


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
    levels = {logger: logger.level for logger in map(logging.getLogger, _LOUD)}
    with warnings.catch_warnings(action="ignore"):
        from transformers.utils import logging as transformers_logging

        bars = transformers_logging.is_progress_bar_enabled()
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        for logger in levels:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in levels.items():
                logger.setLevel(level)
            if bars:
                transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _config(model: SentenceTransformer) -> object:
    """The configuration of a model in transformers; None if there is no such configuration."""
    return getattr(getattr(model[0], "auto_model", None), "config", None) if len(model) else None
