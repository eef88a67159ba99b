"""Patterns that are pooled from token vectors: passages of their windows, and windows of their passages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document

from langgraph_convcoa import HopfieldRetriever
from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.documents.split import windows
from langgraph_convcoa.retrieval.encoders.base import normalised
from langgraph_convcoa.retrieval.encoders.cache import PatternCache, encode_windows
from langgraph_convcoa.retrieval.encoders.choice import encoder_from_settings, encoder_settings
from langgraph_convcoa.retrieval.encoders.pooled import PassageText
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from langgraph_convcoa.retrieval.encoders.wrappers import RecentEncoder
from langgraph_convcoa.retrieval.memory_corpus import build_memory
from langgraph_convcoa.retrieval.query.model import encoder_identity
from tests.retrieval.tiny_bert import save_tiny_bert

TEXT = "what is the network was it\nhopfield stores a memory the river"
WHOLE = (0, len(TEXT))
FIRST, SECOND = (0, TEXT.index("hopfield") - 1), (TEXT.index("hopfield"), len(TEXT))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny_bert(tmp_path_factory.mktemp("tiny") / "bert"))


@pytest.fixture(scope="module")
def saved(checkpoint: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("saved") / "bert"
    SentenceTransformerEncoder(checkpoint, device="cpu").save(place)
    return str(place)


def encoder(saved: str, kind: str) -> SentenceTransformerEncoder:
    return SentenceTransformerEncoder(saved, device="cpu", dtype="float32", windows=kind)


def test_a_passage_is_pooled_from_its_windows_each_token_once(saved: str) -> None:
    pooled = encoder(saved, "pooled")
    bert: Any = pooled._numpy()
    one = bert.vectors(bert.token_ids([TEXT]))
    assert np.allclose(
        pooled.encode_sets([PassageText("", TEXT, (WHOLE,))]), normalised(np.repeat(one, 2, 0), 2, None, ""), atol=1e-5
    )

    ids = bert.token_ids(["the book", TEXT[slice(*FIRST)], TEXT[slice(*SECOND)]])
    parts, tokens = bert.vectors(ids), np.array([len(one) for one in ids])
    by_hand = (parts * tokens[:, None]).sum(axis=0) / tokens.sum()
    found = pooled.encode_sets([PassageText("the book", TEXT, (FIRST, SECOND))])
    np.testing.assert_allclose(found, normalised([by_hand, *parts[1:]], 3, None, ""), atol=1e-5)
    # What windows share counts once.
    shared = pooled.encode_sets([PassageText("", TEXT, (WHOLE, SECOND))])
    ends = parts[2] * tokens[2] - token_sum(pooled, TEXT[slice(*SECOND)])
    np.testing.assert_allclose(
        shared[0], normalised([one[0] * len(bert.token_ids([TEXT])[0]) + ends], 1, None, "")[0], atol=1e-5
    )


def token_sum(pooled: SentenceTransformerEncoder, text: str) -> Any:
    """The sum of the token states of a text, without the first and the last token."""
    bert: Any = pooled._numpy()
    found: list[Any] = []
    session: Any = pooled._session(bert, False)
    session.tokens(bert.token_ids([text]), lambda _places, states: found.append(states[0, 1:-1].sum(axis=0)), lambda _: None)
    return found[0]


def test_windows_are_pooled_from_one_run_over_the_passage(saved: str) -> None:
    late = encoder(saved, "late")
    title = "the book"
    found = late.encode_sets([PassageText(title, TEXT, (WHOLE, FIRST, SECOND)), PassageText("", TEXT, (WHOLE,))])
    bert: Any = late._numpy()
    whole = bert.vectors(bert.token_ids([f"{title}\n{TEXT}", TEXT]))
    np.testing.assert_allclose(found[[0, 4]], normalised(whole, 2, None, ""), atol=1e-5)
    np.testing.assert_allclose(found[5], normalised([token_sum(late, TEXT)], 1, None, "")[0], atol=1e-5)
    # The first six words and the other six are all of the text, and none of the title.
    sizes = np.linalg.lstsq(found[2:4].T, found[1], rcond=None)
    assert sizes[0].min() > 0
    assert sizes[1] < 1e-8


@pytest.mark.parametrize("kind", ["pooled", "late"])
def test_what_was_pooled_is_kept_apart_from_what_was_not(saved: str, tmp_path: Path, kind: str, monkeypatch: Any) -> None:
    passages = [PassageText("", text, tuple(windows(text))) for text in (TEXT, "a river. " * 9, TEXT, "who is it? " * 5)]
    cache, chosen = PatternCache(tmp_path / "cache.sqlite"), RecentEncoder(encoder(saved, kind), 10)
    apart = encode_windows(encoder(saved, "apart"), passages, cache)
    seen: list[tuple[int, int]] = []
    made = encode_windows(chosen, passages, cache, lambda done, total: seen.append((done, total)))
    np.testing.assert_allclose(made, encode_windows(chosen, passages, None), atol=1e-5)
    assert (seen[-1], made.shape) == ((3, 3), apart.shape)
    assert np.abs(made - apart).max() > 1e-2
    monkeypatch.setattr(SentenceTransformerEncoder, "encode_sets", None)
    np.testing.assert_array_equal(encode_windows(chosen, passages, cache), made)
    np.testing.assert_array_equal(encode_windows(encoder(saved, "apart"), passages, cache), apart)
    assert chosen.name.endswith(f"|{kind}")
    assert encoder_identity(chosen.name) == encoder_identity(encoder(saved, "apart").name)


@pytest.mark.parametrize("kind", ["pooled", "late"])
def test_an_index_says_how_it_was_pooled(saved: str, tmp_path: Path, kind: str) -> None:
    made = encoder(saved, kind)
    documents = [Document("hopfield stores a memory", id="a"), Document("the river of the book", id="b")]
    HopfieldRetriever.from_documents(documents, path=tmp_path / "index", encoder=made)
    reopened = HopfieldRetriever.from_pretrained(tmp_path / "index")
    reopened.add_documents([Document("who was in it", id="c")])
    assert repr(reopened.encoder) == repr(made)
    assert reopened.invoke("who was in it", k=1)[0].id == "c"
    with pytest.raises(RetrievalError, match=rf"\|{kind}', not "):
        HopfieldRetriever.from_pretrained(tmp_path / "index", encoder=encoder(saved, "apart"))
    settings = encoder_settings(made)
    assert settings is not None
    assert repr(encoder_from_settings(settings)) == repr(made)


def test_what_cannot_be_pooled_says_so(saved: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="windows"):
        encoder(saved, "both")
    with pytest.raises(InputError, match="leave out dtype"):
        SentenceTransformerEncoder(saved, dtype="bfloat16", windows="late")
    SentenceTransformerEncoder(saved, device="cpu", pooling="cls").save(tmp_path / "cls")
    with pytest.raises(RetrievalError, match="by the mean"):
        build_memory([Document("who was it")], encoder(str(tmp_path / "cls"), "late"))
    loaded = encoder(saved, "late")
    assert loaded.model is not None
    with pytest.raises(RetrievalError, match="take another one"):
        build_memory([Document("who was it")], loaded)


@pytest.mark.parametrize("kind", ["pooled", "late"])
def test_one_long_token_and_texts_of_white_space(saved: str, kind: str) -> None:
    chosen = encoder(saved, kind)
    memory = build_memory([Document("a" * 20_000), Document(" \n what is it \n "), Document("日本語 🎉")], chosen)
    assert np.isfinite(memory.patterns.values).all()
    np.testing.assert_allclose(np.linalg.norm(memory.patterns.values, axis=1), 1, atol=1e-5)
    assert chosen.encode_sets([]).shape == (0, 32)
