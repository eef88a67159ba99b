"""The default encoder: a sentence-transformers model, loaded when it is first needed."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np

from langgraph_convcoa.errors import InputError, RetrievalError, one_of
from langgraph_convcoa.files import replacing_folder
from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER, Encoder, Vectors, normalised
from langgraph_convcoa.retrieval.encoders.bert import Bert, bert_of
from langgraph_convcoa.retrieval.encoders.loading import (
    DEFAULT_NAMES,
    counting_copy,
    load_model,
    quiet,
    revision_of,
    write_checksums,
)
from langgraph_convcoa.retrieval.encoders.onnx_bert import onnx_bert
from langgraph_convcoa.retrieval.threads import cores

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer

Dtype = Literal["int8", "float32"]
DTYPES: tuple[Dtype, ...] = get_args(Dtype)
_AT_ONCE = 1024


class SentenceTransformerEncoder(Encoder):
    """Encode with a sentence-transformers model.

    The model is loaded on first use; threads may share an encoder. On the processor onnxruntime computes every BERT with mean
    or CLS pooling. sentence-transformers (torch) is used for other models, on other devices, and always after `model` is used.

    Args:
        name: Folder or hub name of the model; the default, all-MiniLM-L6-v2, comes with the extra `offline`.
        device: "cpu", "cuda", ...; chosen by sentence-transformers when None.
        batch_size: Texts in a forward pass of torch.
        dtype: "int8" computes the linear layers of a BERT in eight bits when it encodes passages, about twice as fast as
            "float32", with a mean cosine of 0.999 to it (`OnnxBert`). Questions and torch use float32 with both.

    Raises:
        InputError: A setting has an invalid value.
        RetrievalError: On first use, if the model cannot be loaded.

    Example:
        >>> SentenceTransformerEncoder("some/model", dtype="float32")
        SentenceTransformerEncoder('some/model', dtype='float32')
    """

    def __init__(
        self,
        name: str = DEFAULT_ENCODER,
        device: str | None = None,
        batch_size: int = 32,
        dtype: Dtype | str = "int8",
    ) -> None:
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, not {batch_size}.")
        self.model_name, self.device, self.batch_size = name, device, batch_size
        self.dtype: Dtype = one_of("dtype", dtype, DTYPES)
        self._model: SentenceTransformer | None = None
        self._counter: Tokenizer | None = None
        self._name: str | None = None
        # Fast tokenizers keep their truncation as state, so one text is encoded at a time.
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"SentenceTransformerEncoder({self.model_name!r}, dtype={self.dtype!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy loads the model again when it needs it, without weights that were trained here and not saved.
        return type(self), (self.model_name, self.device, self.batch_size, self.dtype)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # Threads may share an encoder, so copies share it too.
        return self

    @property
    def name(self) -> str:
        """Model, revision, dtype and length; the same on every machine."""
        with self._lock:
            if self._name is None:
                self._name = "|".join([self._identity(), self.dtype, str(self.max_tokens)])
            return self._name

    @property
    def model(self) -> SentenceTransformer:
        """The model in torch, loaded on first use; gradients flow through it.

        After training the model, encode with a new encoder: this one keeps its old `name`.
        """
        return self._load()

    def save(self, folder: str | Path) -> None:
        """Save the model to an empty or missing folder, whose path is then a `name` for an encoder.

        It is written completely or not at all. InputError if the folder has content, RetrievalError if it cannot be written.
        """
        target = Path(folder)
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise InputError(f"The folder {target} holds other files; name an empty one for the encoder.")
        # Not `_load`: after it torch would encode, because a model that is loaded in torch may be trained.
        model = self._model or load_model(self.model_name, self.device)
        try:
            with replacing_folder(target) as partial, self._lock, quiet():
                model.save_pretrained(str(partial), create_model_card=False)
                write_checksums(partial)
        except OSError as error:
            raise RetrievalError(f"The encoder cannot be saved to {target}: {error}.") from error

    @property
    def dimension(self) -> int:
        if (bert := self._onnx()) is not None:
            return bert.dimension
        model = self._load()
        # The method was renamed between releases of sentence-transformers.
        method = getattr(model, "get_embedding_dimension", None) or model.get_sentence_embedding_dimension
        return int(method() or 0)

    @property
    def max_tokens(self) -> int:
        if (bert := self._onnx()) is not None:
            return bert.max_tokens
        return int(self._load().max_seq_length or 512)

    def count_tokens(self, text: str) -> int:
        return self.count_tokens_batch([text])[0]

    def count_tokens_batch(self, texts: Sequence[str]) -> list[int]:
        with self._lock:
            if self._counter is None:
                bert = self._onnx()
                self._counter = counting_copy(self._load()) if bert is None else bert.tokenizer
            # In parts: an encoding takes many times the memory of its text.
            parts = (texts[start : start + _AT_ONCE] for start in range(0, len(texts), _AT_ONCE))
            return [len(encoding.ids) for part in parts for encoding in self._counter.encode_batch_fast(list(part))]

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        if (bert := self._onnx()) is not None:
            # float32, and all threads on one product.
            session = onnx_bert(self.model_name, bert, int8=False, threads=cores())
            if session is not None:
                rows = session.recent_vectors(bert.token_ids(texts))
                return normalised(rows, len(texts), session.dimension, self.model_name)
        return self._encode_in_torch(texts, "encode_query")

    def encode_passages(self, texts: Sequence[str]) -> Vectors:
        if (bert := self._onnx()) is not None:
            # Eight bits if wanted, and one thread for each batch.
            session = onnx_bert(self.model_name, bert, int8=self.dtype == "int8")
            if session is not None:
                parts = [texts[start : start + _AT_ONCE] for start in range(0, len(texts), _AT_ONCE)]
                rows = [session.vectors(bert.token_ids(part)) for part in parts or [[]]]
                return normalised(np.concatenate(rows), len(texts), session.dimension, self.model_name)
        return self._encode_in_torch(texts, "encode_document")

    def _encode_in_torch(self, texts: Sequence[str], method: str) -> Vectors:
        with self._lock:
            rows = getattr(self._load(), method)(list(texts), batch_size=self.batch_size, show_progress_bar=False)
        return normalised(rows, len(texts), self.dimension, self.model_name)

    def _onnx(self) -> Bert | None:
        """The model for onnxruntime; None if torch computes it (another kind of model or device, or loaded in torch)."""
        return self._bert if self._model is None else None

    @cached_property
    def _bert(self) -> Bert | None:
        return bert_of(self.model_name, self.device)

    def _load(self) -> SentenceTransformer:
        # The first check takes no lock: encoding in another thread holds it.
        if self._model is None:
            with self._lock:
                if self._model is None:
                    self._model = load_model(self.model_name, self.device)
        return self._model

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
        return f"{self.model_name}@{revision_of(self.model_name, self._load)}"
