"""A small trained verifier: a cross-encoder in onnxruntime, without torch."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache, partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.files import replacing
from langgraph_convcoa.retrieval.encoders.base import DEFAULT_ENCODER
from langgraph_convcoa.retrieval.encoders.bert import LAYER, Array, Bert, OnnxBert, bert_of
from langgraph_convcoa.retrieval.query.query_encoder import Differences
from langgraph_convcoa.text.words import STOP_WORDS, stem, words
from langgraph_convcoa.verification.verifier import CrossEncoderVerifier, LexicalVerifier, Verifier

if TYPE_CHECKING:
    from tokenizers import Encoding

logger = logging.getLogger(__name__)

_FORMAT = "convcoa verifier"
_VERSION = "2"
_TOKENS = 192
_LONGEST = 4_000  # Characters of a claim or a premise that are read.
_PACKAGE, _FILE = "langgraph_convcoa.verification", "verifier.safetensors"
_FEW_WORDS, _FUNCTION_WORDS = 12, 0.08
"""A text of fewer words counts as English. A longer text does if more than this share of its words are function words."""
_OF_A_CLAIM = 0.2
_HEAD, _BIAS, _SHARED = "head.weight", "head.bias", "shared.weight"
_TYPES = "embeddings.token_type_embeddings.weight"
_ALSO = (_TYPES, "embeddings.LayerNorm.weight", "embeddings.LayerNorm.bias")


class TrainedVerifier:
    """A copy of the default encoder that reads a claim and its premise, with a linear layer over [CLS] and the mean.

    Words that stand in both the claim and the premise get their own token types (`token_types`). The file has the differences
    from the encoder's weights in eight bits. The linear layers compute in eight bits (`OnnxBert`). Several threads may use one
    verifier. RetrievalError on first use if the file or the encoder is missing, damaged, or does not fit.

    Example:
        >>> TrainedVerifier("my/verifier.safetensors")
        TrainedVerifier('my/verifier.safetensors')
    """

    def __init__(self, path: str | Path, *, threshold: float | None = None) -> None:
        self.path = Path(path)
        self.name = str(path)
        self._given = threshold
        self._loaded: tuple[OnnxBert, Any, Array, float, float] | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"TrainedVerifier({self.name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(TrainedVerifier, str(self.path), threshold=self._given), ()

    @property
    def threshold(self) -> float:
        """T: the given threshold, or the one chosen when the verifier was trained."""
        return self._given if self._given is not None else self._load()[4]

    def support(self, claims: Sequence[str], premises: Sequence[str]) -> list[float]:
        network, tokenizer, head, bias, _ = self._load()
        pairs = [(claim[:_LONGEST], premise[:_LONGEST]) for claim, premise in zip(claims, premises, strict=True)]
        encodings = tokenizer.encode_batch(pairs)
        types = [token_types(one, *pair) for one, pair in zip(encodings, pairs, strict=True)]
        rows = network.vectors([one.ids for one in encodings], types=types)
        shares = 1 / (1 + np.exp(-np.clip(rows.astype(np.float64) @ head + bias, -60, 60)))
        return [float(share) for share in shares]

    def _load(self) -> tuple[OnnxBert, Any, Array, float, float]:
        with self._lock:
            if self._loaded is None:
                self._loaded = self._read()
            return self._loaded

    def _read(self) -> tuple[OnnxBert, Any, Array, float, float]:
        from tokenizers import Tokenizer

        try:
            with safe_open(self.path, framework="numpy") as stored:
                meta = stored.metadata() or {}
                tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 - no mapping
            if (meta.get("format"), meta.get("version")) != (_FORMAT, _VERSION):
                raise ValueError(f"it is version {meta.get('version')} of {meta.get('format')!r}")
            settings = json.loads(meta["settings"])
            base, threshold = str(settings["base"]), float(settings["threshold"])
            head, bias = tensors.pop(_HEAD).astype(np.float64), float(tensors.pop(_BIAS)[0])
            shared = tensors.pop(_SHARED)
        except (OSError, SafetensorError, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            raise RetrievalError(f'The verifier {self.path} cannot be read ({error}); use verifier="default".') from error
        bert = bert_of(base, "cpu")
        if bert is None:
            raise RetrievalError(f'The verifier needs the encoder {base!r}: pip install "langgraph-convcoa[offline]".')
        changed = Differences(tensors, meta["base_hash"]).added_to(_trainable(bert), base)
        changed[_TYPES] = np.concatenate([changed[_TYPES], changed[_TYPES] + shared])
        network = OnnxBert(replace(bert, weights={**bert.weights, **changed}), int8=True, pooling="both")
        if head.shape != (network.dimension,):
            raise RetrievalError(f"The verifier {self.path} does not fit the encoder {base!r}; train it again.")
        tokenizer = Tokenizer.from_str(bert.tokenizer.to_str())
        tokenizer.enable_truncation(min(_TOKENS, bert.max_tokens), strategy="longest_first")
        return network, tokenizer, head, bias, threshold


class DefaultVerifier:
    """The verifier that comes with the package; it was trained on English.

    Text in another language is judged by its words (`LexicalVerifier`), and so is all text if the encoder is not installed. A
    log line says so once.

    Example:
        >>> verifier = DefaultVerifier()
        >>> claims = ["The bridge opened in 1931.", "The bridge closed in 1931."]
        >>> shares = verifier.support(claims, ["The bridge was opened to traffic in 1931."] * 2)
        >>> [share > verifier.threshold for share in shares]
        [True, False]
    """

    name = "default"

    def __init__(self) -> None:
        self._lexical = LexicalVerifier()
        with packaged_verifier() as path:
            self._trained = TrainedVerifier(path)
        self._missing: str | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _default, ()

    @property
    def threshold(self) -> float:
        """T of the trained verifier, or of the lexical one if the encoder is not installed."""
        return self._trained.threshold if self._ready() else self._lexical.threshold

    def support(self, claims: Sequence[str], premises: Sequence[str]) -> list[float]:
        if not self._ready():
            return self._lexical.support(claims, premises)
        shares = [0.0] * len(claims)
        read = [n for n, pair in enumerate(zip(claims, premises, strict=True)) if _is_english(*pair)]
        for n, share in zip(read, self._trained.support([claims[n] for n in read], [premises[n] for n in read]), strict=True):
            shares[n] = share
        if len(read) < len(claims):
            self._say("Claims in other languages than English are judged by shared words.")
            others = [n for n in range(len(claims)) if n not in set(read)]
            found = self._lexical.support([claims[n] for n in others], [premises[n] for n in others])
            for n, share in zip(others, found, strict=True):
                shares[n] = self._scaled(share)
        return shares

    def _scaled(self, share: float) -> float:
        """The share of shared words, scaled so that the lexical T becomes the trained T."""
        least, own = self._lexical.threshold, self._trained.threshold
        return own * share / least if share <= least else own + (1 - own) * (share - least) / (1 - least)

    def _ready(self) -> bool:
        if self._missing is None:
            try:
                _ = self._trained.threshold
                self._missing = ""
            except RetrievalError as error:
                self._missing = str(error)
                self._say(f"Answers are verified by shared words only: {error}")
        return not self._missing

    def _say(self, line: str) -> None:
        if line not in _SAID:
            _SAID.add(line)
            logger.warning(line)


_SAID: set[str] = set()


def _is_english(claim: str, premise: str) -> bool:
    """Whether enough words of the claim, or of claim and premise together, are English function words.

    A short text counts as English. A claim with a fifth of function words does too, since its premise may be a table.
    """
    text = f"{claim[:_LONGEST]} {premise[:_LONGEST]}"
    letters = sum(map(str.isalpha, text))
    plain = sum(character.isascii() and character.isalpha() for character in text)
    if plain < 0.7 * letters:
        return False
    own, found = words(claim[:_LONGEST]), words(text)
    if _function_words(own) >= _OF_A_CLAIM * max(1, len(own)):
        return True
    return len(found) < _FEW_WORDS or _function_words(found) > _FUNCTION_WORDS * len(found)


def _function_words(found: Sequence[str]) -> int:
    """Number of English function words. Words of one letter do not count: other languages have them too."""
    return sum(len(word) > 1 and word in STOP_WORDS for word in found)


def packaged_verifier() -> AbstractContextManager[Path]:
    """The file of the verifier that comes with the package."""
    return as_file(files(_PACKAGE) / _FILE)


def as_verifier(verifier: Verifier | str) -> Verifier:
    """The verifier of this name; an object with `support` is returned unchanged.

    "default" is the package's own `DefaultVerifier`, "lexical" the share of shared words, a file `*.safetensors` a
    `TrainedVerifier`. Any other name is the name or the folder of a sentence-transformers `CrossEncoder`.

    Raises InputError for anything else.

    Example:
        >>> as_verifier("lexical").name
        'lexical'
    """
    if verifier == "lexical":
        return LexicalVerifier()
    if verifier == "default":
        return _default()
    if isinstance(verifier, str) and verifier.endswith(".safetensors"):
        return TrainedVerifier(verifier)
    if isinstance(verifier, str) and verifier.strip():
        return CrossEncoderVerifier(verifier)
    if not isinstance(verifier, str) and isinstance(verifier, Verifier):
        return verifier
    known = '"default", "lexical", the name of a CrossEncoder, or an object with `support`'
    raise InputError(f"verifier must be {known}, not {verifier!r}.")


def token_types(encoding: Encoding, claim: str, premise: str) -> list[int]:
    """The types of a pair's tokens: 0 in the claim, 1 in the premise; plus 2 if the other text has a word of the same stem.

    A false claim often has a word that the premise lacks. A network of this size is slow to learn that from attention.

    Args:
        encoding: The tokens of the pair.
        claim: The first text.
        premise: The second text.
    """
    texts = claim, premise
    places = list(zip(encoding.sequence_ids, encoding.word_ids, encoding.offsets, strict=True))
    spans: dict[tuple[int | None, int | None], tuple[int, int]] = {}
    for side, word, (start, end) in places:
        first, last = spans.get((side, word), (start, end))
        spans[side, word] = min(first, start), max(last, end)
    stems = {
        (side, word): stem(texts[side][start:end].lower()) for (side, word), (start, end) in spans.items() if side is not None
    }
    own, other = ({found for (side, _), found in stems.items() if side == n} for n in (0, 1))
    shared = own & other
    return [
        kind + 2 * (side is not None and stems[side, word] in shared)
        for kind, (side, word, _) in zip(encoding.type_ids, places, strict=True)
    ]


def save_verifier(
    path: str | Path,
    weights: dict[str, Array],
    head: Array,
    bias: float,
    shared: Array,
    threshold: float,
    base: str = DEFAULT_ENCODER,
) -> None:
    """Write a trained verifier.

    Args:
        path: The file.
        weights: Weights by their names in the encoder.
        head: The linear layer over [CLS] and the mean.
        bias: The bias of that layer.
        shared: A vector for each type, added to the embeddings of types 0 and 1 for words that both texts have.
        threshold: T.
        base: The encoder.
    """
    bert = bert_of(base, "cpu")
    if bert is None:
        raise RetrievalError(f"The base encoder {base!r} is not on this machine.")
    differences = Differences.between(_trainable(bert), {name: weights[name] for name in _trainable(bert)})
    tensors: dict[str, npt.NDArray[Any]] = {name: np.ascontiguousarray(one) for name, one in differences.tensors.items()}
    tensors |= {_HEAD: head.astype(np.float32), _BIAS: np.array([bias], dtype=np.float32), _SHARED: shared.astype(np.float32)}
    settings = json.dumps({"base": base, "threshold": threshold})
    meta = {"format": _FORMAT, "version": _VERSION, "base_hash": differences.base_hash, "settings": settings}
    with replacing(path) as partial:
        save_file(tensors, partial, metadata=meta)


def _trainable(bert: Bert) -> dict[str, Array]:
    """The weights that training may change: all except the embeddings of words and positions."""
    return {name: weight for name, weight in bert.weights.items() if name.startswith(LAYER) or name in _ALSO}


@cache
def _default() -> DefaultVerifier:
    """The one default verifier of a process: its weights take 100 MB, and graphs are built often."""
    return DefaultVerifier()
