"""The default encoder: a sentence-transformers model, loaded when it is first needed."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np

from langgraph_convcoa.errors import InputError, RetrievalError, one_of
from langgraph_convcoa.files import replacing_folder
from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER, Encoder, Vectors, normalised
from langgraph_convcoa.retrieval.encoders.bert import Bert, bert_of, has_bfloat16, has_int8
from langgraph_convcoa.retrieval.encoders.bert_onnx import OnnxBert, QuestionBert, can_load
from langgraph_convcoa.retrieval.encoders.loading import (
    DEFAULT_NAMES,
    POOLINGS,
    Pooling,
    counting_copy,
    load_model,
    quantise,
    quiet,
    set_pooling,
    write_checksums,
)
from langgraph_convcoa.retrieval.encoders.pooled import WINDOW_KINDS, PassageText, WindowKind, pooled_vectors
from langgraph_convcoa.retrieval.progress import Progress, track

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer

Dtype = Literal["auto", "float32", "bfloat16", "int8", "torchao-int8"]
DTYPES: tuple[Dtype, ...] = get_args(Dtype)
ATTENTION_CHOICES: tuple[Literal["auto", "softmax", "softmax1"], ...] = ("auto", "softmax", "softmax1")
_EIGHT_BIT = "torchao-int8"
_AT_ONCE, _SETS_AT_ONCE = 1024, 64
# Up to so much text is encoded in numpy, which takes as long as it takes onnxruntime (or torch) to begin.
_NUMPY_CHARACTERS = 20_000


class SentenceTransformerEncoder(Encoder):
    """Encode with a sentence-transformers model.

    The default, all-MiniLM-L6-v2, is taken from the package of the extra `offline` where that is installed, so that no
    download is needed; any other name is a folder or is loaded from the Hugging Face hub. Nothing is loaded before the
    first use, and several threads may use one encoder.

    Args:
        name: Folder or hub name of the model.
        device: "cpu", "cuda", ...; chosen by sentence-transformers when None.
        batch_size: Texts a forward pass; passages are sorted by length first.
        dtype: What is computed in; vectors are float32 in any case, and those of one type are not taken for another's in a
            cache. "bfloat16" is about 1.8 times as fast as float32 on processors that have it, with a cosine to float32 above
            0.9999. "int8" has the linear layers of a BERT such as the default one in eight bits where passages are encoded
            (`OnnxBert`; mean cosine to float32 0.999 for the default encoder); questions, and up to 20,000 characters of
            passages at a time, are in float32. "auto" takes what the processor has instructions for: bfloat16, else int8,
            else float32. An index that was built in one of the three may be added to in another. "torchao-int8" has the
            linear layers of any model in eight bits (the extra `int8`; see `quantise`).
        attention: "softmax1" computes attention with softmax_1, as OutEffHop does, for a model that is or will be trained
            with it; "softmax" without it; "auto" as the model was saved by `save`.
        pooling: How tokens become a vector, "cls" or "mean"; "auto" as the checkpoint says, by the mean where it says nothing.
        windows: What is encoded of a passage. "apart": the whole and each of its windows. "pooled": each window, and the whole
            is pooled from their tokens. "late": the whole, and the windows are pooled from its tokens (late chunking). The
            latter two have about 1.7 and 2.3 times less to encode, need a BERT that pools by the mean on the processor, and
            make vectors that are not mixed with others in a cache or an index.

    Raises:
        InputError: A setting is none of these.
        RetrievalError: On first use, when the model cannot be loaded or cannot be used in this way.
    """

    def __init__(
        self,
        name: str = DEFAULT_ENCODER,
        device: str | None = None,
        batch_size: int = 32,
        dtype: Dtype | str = "auto",
        attention: Literal["auto", "softmax", "softmax1"] | str = "auto",
        pooling: Pooling | str = "auto",
        windows: WindowKind | str = "apart",
    ) -> None:
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, not {batch_size}.")
        self.model_name, self.device, self.batch_size = name, device, batch_size
        self.dtype = one_of("dtype", dtype, DTYPES)
        self.attention = one_of("attention", attention, ATTENTION_CHOICES)
        self.pooling = one_of("pooling", pooling, POOLINGS)
        self.windows = one_of("windows", windows, WINDOW_KINDS)
        if self.windows != "apart" and self.dtype not in ("auto", "float32", "int8"):
            raise InputError(f"windows={self.windows!r} is computed in float32 or int8, not {self.dtype}; leave out dtype.")
        self._other_pooling = False
        self._model: SentenceTransformer | None = None
        self._bert: Bert | None = None
        self._questions: QuestionBert | None = None
        self._sessions: dict[bool, OnnxBert] = {}  # In eight bits, and in float32.
        self._looked = False
        self._counter: Tokenizer | None = None
        self._name: str | None = None
        # Fast tokenizers carry their truncation as state and cannot be borrowed twice, so encoding is one at a time.
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        given = {"dtype": self.dtype, "attention": self.attention, "pooling": self.pooling, "windows": self.windows}
        shown = "".join(
            f", {name}={value!r}" for name, value in given.items() if name == "dtype" or value not in ("auto", "apart")
        )
        return f"SentenceTransformerEncoder({self.model_name!r}{shown})"

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy loads the model again when it needs it: weights that were trained here and not saved are not in it.
        return type(self), (
            self.model_name,
            self.device,
            self.batch_size,
            self.dtype,
            self.attention,
            self.pooling,
            self.windows,
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # Threads share it, and so may copies.
        return self

    @property
    def name(self) -> str:
        with self._lock:
            if self._name is None:
                parts = [self._identity(), self._computes_in(), str(self.max_tokens)]
                if self._numpy() is None:
                    from langgraph_convcoa.retrieval.encoders.outlier_free import attention_of

                    if attention_of(self.model) != "softmax":
                        parts.insert(1, attention_of(self.model))
                if self._other_pooling:
                    parts.insert(1, self.pooling)
                if self.windows != "apart":
                    parts.append(self.windows)
                self._name = "|".join(parts)
            return self._name

    @property
    def model(self) -> SentenceTransformer:
        """The model, loaded on first use; its vectors of texts can be differentiated unless it is in eight bits.

        After training it, take another encoder for its vectors: this one keeps the `name` it had.
        """
        return self._load()

    def save(self, folder: str | Path) -> None:
        """Save the model, its pooling and its attention to an empty or missing folder that `name` can be opened from.

        The folder is complete or not there. InputError where it has something in it, RetrievalError where the model is in
        eight bits or cannot be written.
        """
        if self.dtype == _EIGHT_BIT:
            raise RetrievalError(f"An encoder in {self.dtype} is not saved; save it in float32 and open it in {self.dtype}.")
        target = Path(folder)
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise InputError(f"The folder {target} holds other files; name an empty one for the encoder.")
        # Not `_load`: a model that is loaded in torch is taken to be trained, and encodes there from then on.
        model = self._model or self._prepared()
        try:
            with replacing_folder(target) as partial, self._lock, quiet():
                model.save_pretrained(str(partial), create_model_card=False)
                write_checksums(partial)
        except OSError as error:
            raise RetrievalError(f"The encoder cannot be saved to {target}: {error}.") from error

    @property
    def dimension(self) -> int:
        if (bert := self._numpy()) is not None:
            return bert.dimension
        model = self._load()
        # The name of the method has moved between releases of sentence-transformers.
        method = getattr(model, "get_embedding_dimension", None) or model.get_sentence_embedding_dimension
        return int(method() or 0)

    @property
    def max_tokens(self) -> int:
        if (bert := self._numpy()) is not None:
            return bert.max_tokens
        return int(self._load().max_seq_length or 512)

    def count_tokens(self, text: str) -> int:
        return self.count_tokens_batch([text])[0]

    def count_tokens_batch(self, texts: Sequence[str]) -> list[int]:
        with self._lock:
            if self._counter is None:
                bert = self._numpy()
                self._counter = counting_copy(self._load()) if bert is None else bert.tokenizer
            # In parts, since an encoding takes many times the memory of its text.
            parts = (texts[start : start + _AT_ONCE] for start in range(0, len(texts), _AT_ONCE))
            return [len(encoding.ids) for part in parts for encoding in self._counter.encode_batch_fast(list(part))]

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        bert = self._numpy()
        if bert is None or sum(map(len, texts)) > _NUMPY_CHARACTERS:
            return self._encode(texts, True, False)
        questions = self._questions or QuestionBert(bert)
        return normalised(questions.recent_vectors(bert.token_ids(texts)), len(texts), bert.dimension, self.model_name)

    def encode_passages(self, texts: Sequence[str], progress: Progress = False) -> Vectors:
        return self._encode(texts, False, progress)

    def encode_sets(self, passages: Sequence[PassageText], progress: Progress = False) -> Vectors:
        """Patterns (N, d) of passages one after another, the whole and then its windows, where `windows` is not "apart"."""
        bert = self._numpy()
        session = None if bert is None else self._session(bert, False)
        if bert is None or session is None:
            raise RetrievalError(self._loaded_in_torch())
        parts = [passages[start : start + _SETS_AT_ONCE] for start in range(0, len(passages), _SETS_AT_ONCE)]
        with track(progress, len(passages), "Encoding") as advance:
            rows = [pooled_vectors(bert, session, self.windows, part, advance) for part in parts]
        every = np.concatenate(rows) if rows else np.zeros((0, bert.dimension), dtype=np.float32)
        return normalised(every, len(every), bert.dimension, self.model_name)

    def _encode(self, texts: Sequence[str], queries: bool, progress: Progress) -> Vectors:
        bert = self._numpy()
        if bert is not None and sum(map(len, texts)) <= _NUMPY_CHARACTERS:
            with track(progress, len(texts), "Encoding") as advance:
                rows = normalised(bert.vectors(bert.token_ids(texts)), len(texts), bert.dimension, self.model_name)
                advance(len(texts))
            return rows
        if bert is not None and (session := self._session(bert, queries)) is not None:
            found = np.zeros((len(texts), bert.dimension), dtype=np.float32)
            # Longest first, so that the time that is left is not underestimated.
            order = sorted(range(len(texts)), key=lambda i: len(texts[i]), reverse=True)
            with track(progress, len(texts), "Encoding") as advance:
                for start in range(0, len(order), _AT_ONCE):
                    part = order[start : start + _AT_ONCE]
                    found[part] = session.vectors(bert.token_ids([texts[i] for i in part]), advance)
            return normalised(found, len(texts), bert.dimension, self.model_name)
        if self.dtype == "int8" and not queries:
            raise RetrievalError(self._loaded_in_torch())
        import torch

        encode: Callable[..., Any] = getattr(self._load(), "encode_query" if queries else "encode_document")
        bfloat16 = self._computes_in() == "bfloat16"
        silence = quiet if self.dtype == _EIGHT_BIT else nullcontext
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]), reverse=True)
        with track(progress, len(texts), "Encoding") as advance:
            for batch in _batches(order, [len(text) for text in texts], self.batch_size):
                device_type = torch.device(self._load().device).type
                half = torch.autocast(device_type, dtype=torch.bfloat16) if bfloat16 else nullcontext()
                with self._lock, half, silence():
                    rows = encode([texts[i] for i in batch], batch_size=len(batch), show_progress_bar=False)
                vectors[batch] = np.asarray(rows, dtype=np.float32)
                advance(len(batch))
        return normalised(vectors, len(texts), self.dimension, self.model_name)

    def _numpy(self) -> Bert | None:
        """The model in numpy; None where it cannot be computed so, or is loaded in torch, since it may have been trained."""
        if self._model is not None:
            return None
        if not self._looked:
            with self._lock:
                if not self._looked:
                    plain = self.dtype != _EIGHT_BIT and self.attention != "softmax1" and self.pooling == "auto"
                    self._bert = bert_of(self.model_name, self.device) if plain else None
                    self._questions = None if self._bert is None else QuestionBert(self._bert)
                    self._looked = True
        if self._bert is None and self.dtype == "int8":
            remedy = 'use dtype="auto", or "torchao-int8" with the extra `int8`'
            raise RetrievalError(f"{self.model_name!r} is no BERT that is computed on the processor, as int8 needs: {remedy}.")
        if self.windows != "apart" and (self._bert is None or self._bert.cls):
            what = f"windows={self.windows!r} needs a BERT that pools its tokens by the mean, on the processor"
            raise RetrievalError(f"{what}, which {self.model_name!r} is not; leave it out.")
        return self._bert

    def _session(self, bert: Bert, queries: bool) -> OnnxBert | None:
        """The model in onnxruntime; None where torch computes faster, or nothing is known of the processor."""
        computes_in = self._computes_in()
        if computes_in == "bfloat16" or (has_int8() is None and computes_in != "int8" and self.windows == "apart"):
            return None
        int8 = computes_in == "int8" and not queries
        if not can_load():
            if self.dtype == "int8" or self.windows != "apart":
                raise RetrievalError("onnxruntime cannot be loaded after usearch: import onnxruntime first in this program.")
            return None
        with self._lock:
            if int8 not in self._sessions:
                self._sessions[int8] = OnnxBert(bert, int8=int8)
            return self._sessions[int8]

    def _loaded_in_torch(self) -> str:
        what = "int8" if self.windows == "apart" else f"windows={self.windows!r}"
        why = f"{self.model_name!r} was loaded in torch (`model`), which does not encode in {what}"
        return f"{why}; take another one for passages."

    def _load(self) -> SentenceTransformer:
        # Encoding holds the lock for a batch, and is not waited for here.
        if self._model is None:
            with self._lock:
                if self._model is None:
                    self._model = self._prepared()
        return self._model

    def _prepared(self) -> SentenceTransformer:
        from langgraph_convcoa.retrieval.encoders.outlier_free import saved_attention, use_attention

        model = load_model(self.model_name, self.device)
        wanted = saved_attention(model) if self.attention == "auto" else self.attention
        # A model without a switch for its attention computes with softmax.
        if wanted != "softmax" or saved_attention(model) != "softmax":
            use_attention(model, wanted)
        self._other_pooling = set_pooling(model, self.pooling)
        if self.dtype == _EIGHT_BIT:
            quantise(model)
        return model

    def _computes_in(self) -> str:
        if self.dtype != "auto":
            return self.dtype
        if self.windows != "apart":
            return "int8" if has_int8() else "float32"
        native = has_bfloat16()
        if self._numpy() is not None and native is not None:
            return "bfloat16" if native else "int8" if has_int8() and can_load() else "float32"
        import torch

        capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
        on_cpu = torch.device(self._load().device).type == "cpu"
        native = capabilities.get("avx512_bf16") or capabilities.get("amx_bf16")
        return "bfloat16" if on_cpu and native else "float32"

    def _identity(self) -> str:
        """The model's name and revision on the hub, or for a folder the hash of its weights."""
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
        config = getattr(getattr(self._load()[0], "auto_model", None), "config", None)
        return f"{self.model_name}@{getattr(config, '_commit_hash', None)}"


def _batches(order: Sequence[int], lengths: Sequence[int], size: int) -> Iterator[list[int]]:
    """Parts of at most `size` places, longest texts first; short texts are not padded to twice their length and more."""
    batch: list[int] = []
    for place in order:
        if batch and (len(batch) == size or lengths[batch[0]] > 2 * lengths[place]):
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch
