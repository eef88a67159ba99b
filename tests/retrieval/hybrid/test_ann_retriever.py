import logging
import shutil
from typing import ClassVar

import numpy as np
import pytest
from langchain_core.documents import Document

pytest.importorskip("usearch")

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.hybrid import ann, follow
from langgraph_convcoa.retrieval.hybrid.ann import ANNIndex, ApproximateSettings
from langgraph_convcoa.retrieval.index.index import APPROXIMATE_FILE, Index
from langgraph_convcoa.retrieval.index.writer import WriterLock
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from tests.retrieval.conftest import BagOfWords
from tests.retrieval.test_vectorstore import in_memory

WORDS = (
    *("apple", "pear", "quince", "medlar", "sloe", "cherry", "plum", "fig"),
    *("date", "lime", "lemon", "melon", "grape", "olive", "almond", "walnut"),
)
SETTINGS = ApproximateSettings(candidates=15)
QUESTIONS = ["apple and quince with lime", "which olive is number7?", "walnut melon fig"]


def made(start, stop):
    random = np.random.default_rng(start)
    return [
        Document(
            f"{' '.join(random.choice(WORDS, 4))} number{i}. {' '.join(random.choice(WORDS, 5))}. A third sentence {i}.",
            id=f"d{i}",
            metadata={"even": i % 2 == 0, "n": i},
        )
        for i in range(start, stop)
    ]


class Remembering(BagOfWords):
    """Encodes each text once for all tests."""

    known: ClassVar[dict[str, np.ndarray]] = {}

    def _vectors(self, texts):
        new = [text for text in dict.fromkeys(texts) if text not in self.known]
        self.known.update(zip(new, super()._vectors(new), strict=True))
        return np.stack([self.known[text] for text in texts])


@pytest.fixture
def encoder():
    return Remembering(dimension=64)


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Few of a test's documents stand among the candidates without being linked."""
    monkeypatch.setattr(follow, "behind", lambda new, total: new > 30)


@pytest.fixture(params=["memory", "index"])
def make(request, encoder, tmp_path):
    def retriever(documents, **settings):
        path = tmp_path / "index" if request.param == "index" else None
        return HopfieldRetriever.from_documents(documents, encoder=encoder, path=path, **{"approximate": SETTINGS} | settings)

    return retriever


def exact(retriever):
    return retriever.model_copy(update={"approximate": None})


def ids(retriever, **options):
    return [[document.id for document in retriever.invoke(question, **options)] for question in QUESTIONS]


def shared(found, expected):
    assert [len(one) for one in found] == [len(one) for one in expected]
    return np.mean(
        [len(set(one) & set(other)) / (len(other) or 1) + (not other) for one, other in zip(found, expected, strict=True)]
    )


def test_it_finds_nearly_what_is_there_and_says_that_it_is_not_certain(make):
    retriever = make(made(0, 400), k=10)
    assert shared(ids(retriever), ids(exact(retriever))) >= 0.9
    for question in QUESTIONS:
        scores = {d.id: d.metadata["score"] for d in exact(retriever).invoke(question, k=380)}
        for document in retriever.invoke(question):
            assert document.metadata["certified"] is False
            assert document.metadata["score"] == pytest.approx(scores[document.id], abs=1e-5)
        assert all(document.metadata["certified"] for document in exact(retriever).invoke(question))


def test_only_candidates_are_scored(make, monkeypatch):
    scored, search = [], ann.search
    monkeypatch.setattr(ann, "search", lambda patterns, *a, **s: scored.append(patterns.n) or search(patterns, *a, **s))
    make(made(0, 400), lexical_weight=0.0).invoke(QUESTIONS[0])
    assert 0 < max(scored) <= 3 * SETTINGS.candidates


def test_a_small_memory_is_searched_exactly_without_the_graph(make, monkeypatch):
    retriever = make(made(0, 100))
    monkeypatch.setattr(ANNIndex, "candidates", None)
    assert ids(retriever) == ids(exact(retriever))
    assert all(document.metadata["certified"] for document in retriever.invoke(QUESTIONS[0]))


def test_batches_and_conversations(make):
    retriever = make(made(0, 400), k=10)
    histories = [[("Tell me of melon and grape.", "Melon is sweet.")], None, [("An almond?", "")]]
    found = [[i for i, _ in hits] for hits in retriever.search_batch(QUESTIONS, histories)]
    assert shared(found, [[i for i, _ in hits] for hits in exact(retriever).search_batch(QUESTIONS, histories)]) >= 0.9
    assert found[0] == [document.id for document in retriever.invoke(QUESTIONS[0], history=histories[0])]
    assert found[0] != ids(retriever)[0]


async def test_async_and_history_aware(make):
    retriever = make(made(0, 400), k=4)
    assert [document.id for document in await retriever.ainvoke(QUESTIONS[0])] == ids(retriever)[0]
    documents = retriever.history_aware().invoke({"input": QUESTIONS[0], "chat_history": []})
    assert [document.id for document in documents] == ids(retriever)[0]


@pytest.mark.parametrize(
    ("wanted", "least"),
    [
        ({"n": [3, 333]}, 1.0),
        ({"n": 10_000}, 1.0),
        ({"even": True}, 0.8),
        (lambda document: document.metadata["n"] > 390, 1.0),
    ],
)
def test_a_filter_leaves_as_many_as_exactly(make, wanted, least):
    retriever = make(made(0, 400), k=10, filter=wanted)
    assert shared(ids(retriever), ids(exact(retriever))) >= least


def test_words_name_candidates_that_no_vector_names(make):
    documents = [*made(0, 400), Document("Something else entirely about zygomorphy, blossoms, petals, and stamens.", id="z")]
    question = "apple pear quince zygomorphy"
    assert make(documents, lexical_weight=3.0).invoke(question)[0].id == "z"


@pytest.mark.parametrize("many", [10, 200])
def test_changes_are_seen_at_once(make, many):
    retriever = make(made(0, 400), k=10)
    linked = retriever.corpus.ann
    retriever.delete([f"d{i}" for i in range(many)])
    retriever.add_documents(made(1000, 1000 + many))
    retriever.update([Document("Apple, quince and lime once more.", id="d300")])
    assert shared(ids(retriever), ids(exact(retriever))) >= 0.9
    assert retriever.invoke(QUESTIONS[0])[0].id == exact(retriever).invoke(QUESTIONS[0])[0].id
    if many == 10:
        assert (len(linked._gone), len(linked._new)) == (11, 11)
    else:
        assert max(len(linked._gone), len(linked._new)) <= 1
    every = {document.id for document in retriever.invoke("apple", k=390)}
    assert not every & {f"d{i}" for i in range(many)}
    retriever.compact()
    assert shared(ids(retriever), ids(exact(retriever))) >= 0.9
    for question in QUESTIONS:
        assert all(not document.metadata["certified"] for document in retriever.invoke(question))


@pytest.mark.slow
def test_the_graph_is_found_again_and_not_built(encoder, tmp_path, monkeypatch):
    made_here = HopfieldRetriever.from_documents(
        made(0, 400), encoder=encoder, path=tmp_path / "index", approximate={"candidates": 15}
    )
    in_memory_one = HopfieldRetriever.from_documents(made(0, 400), encoder=encoder, approximate=SETTINGS)
    in_memory_one.save_pretrained(tmp_path / "saved")
    in_memory_one.delete(["d7"])
    in_memory_one.save_pretrained(tmp_path / "less")
    made_here.save_pretrained(tmp_path / "copied", dtype="int8")
    made_here.delete(["d3"])
    made_here.save_pretrained(tmp_path / "without")
    monkeypatch.setattr(ANNIndex, "add", None)
    for folder, missing in (("index", "d3"), ("saved", None), ("less", "d7"), ("copied", None), ("without", "d3")):
        opened = HopfieldRetriever.from_pretrained(tmp_path / folder, encoder=encoder, k=10)
        assert opened.approximate == SETTINGS
        assert shared(ids(opened), ids(exact(opened))) >= 0.9
        assert missing not in {document.id for document in opened.invoke("apple", k=380)}
        assert not opened.invoke(QUESTIONS[0])[0].metadata["certified"]
    flat = HopfieldRetriever.from_pretrained(tmp_path / "index", encoder=encoder, approximate=None)
    assert flat.invoke(QUESTIONS[0])[0].metadata["certified"]


def test_an_index_gets_a_graph_later(encoder, tmp_path):
    HopfieldRetriever.from_documents(made(0, 300), encoder=encoder, path=tmp_path / "index")
    assert not (tmp_path / "index" / APPROXIMATE_FILE).exists()
    HopfieldRetriever.from_documents(made(0, 300), encoder=encoder, path=tmp_path / "index", approximate=SETTINGS)
    assert (tmp_path / "index" / APPROXIMATE_FILE).exists()
    assert HopfieldRetriever.from_pretrained(tmp_path / "index", encoder=encoder).approximate == SETTINGS


@pytest.mark.parametrize("damage", ["missing", "cut", "flipped", "another", "settings"])
def test_a_graph_that_cannot_be_used_is_built_anew_and_kept(encoder, tmp_path, damage, caplog):
    path = tmp_path / "index"
    HopfieldRetriever.from_documents(made(0, 400), encoder=encoder, path=path, approximate=SETTINGS)
    file = path / APPROXIMATE_FILE
    content = file.read_bytes()
    settings = {}
    if damage == "missing":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        file.write_bytes(content[:-2000] + bytes([content[-2000] ^ 1]) + content[-1999:])
    elif damage == "another":
        HopfieldRetriever.from_documents(made(0, 400), encoder=encoder, path=tmp_path / "b", approximate=SETTINGS)
        shutil.copy(tmp_path / "b" / APPROXIMATE_FILE, file)
    else:
        settings = {"approximate": SETTINGS.model_copy(update={"over": "passages"})}
    with caplog.at_level(logging.WARNING):
        opened = HopfieldRetriever.from_pretrained(path, encoder=encoder, k=10, **settings)
        assert shared(ids(opened), ids(exact(opened))) >= (0.5 if settings else 0.9)
    assert ("rebuilt" in caplog.text) == (damage != "missing")
    stage = ANNIndex.load(file)
    assert len(stage.keys) == 400
    assert stage.settings.over == ("passages" if settings else "windows")


def test_a_process_killed_while_documents_came_in_goes_on(encoder, tmp_path):
    path = tmp_path / "index"
    HopfieldRetriever.from_documents(made(0, 300), encoder=encoder, path=path, approximate=SETTINGS)
    before = (path / APPROXIMATE_FILE).read_bytes()
    # Documents are committed, the graph is not written any more.
    Index(path).add_documents(made(300, 600), encoder)
    (path / APPROXIMATE_FILE).write_bytes(before)
    opened = HopfieldRetriever.from_pretrained(path, encoder=encoder, k=10)
    assert shared(ids(opened), ids(exact(opened))) >= 0.9
    assert len(ANNIndex.load(path / APPROXIMATE_FILE).keys) == 600


def test_a_build_is_saved_on_the_way_and_goes_on_after_a_kill(encoder, tmp_path, monkeypatch):
    path = tmp_path / "index"
    HopfieldRetriever.from_documents(made(0, 400), encoder=encoder, path=path)
    monkeypatch.setattr(ann, "_AT_ONCE", 50)
    monkeypatch.setattr(ann, "_CHECKPOINT", 100)
    vectors, added = ANNIndex._vectors, []

    def killed(self, patterns):
        if sum(added) >= 250:
            raise KeyboardInterrupt
        added.append(patterns.n)
        return vectors(self, patterns)

    monkeypatch.setattr(ANNIndex, "_vectors", killed)
    with pytest.raises(KeyboardInterrupt):
        HopfieldRetriever.from_documents(made(0, 400), encoder=encoder, path=path, approximate=SETTINGS)
    assert len(ANNIndex.load(path / APPROXIMATE_FILE).keys) == 200
    added.clear()
    monkeypatch.setattr(ANNIndex, "_vectors", lambda self, patterns: added.append(patterns.n) or vectors(self, patterns))
    opened = HopfieldRetriever.from_pretrained(path, encoder=encoder, k=10)
    assert shared(ids(opened), ids(exact(opened))) >= 0.9
    assert sum(added) == 200


def test_another_process_takes_over_what_one_has_linked(encoder, tmp_path, monkeypatch):
    path = tmp_path / "index"
    writer = HopfieldRetriever.from_documents(made(0, 400), encoder=encoder, path=path, approximate=SETTINGS, k=10)
    reader = HopfieldRetriever.from_pretrained(path, encoder=encoder)
    ids(reader)
    writer.add_documents(made(400, 600))
    monkeypatch.setattr(ANNIndex, "add", None)
    assert shared(ids(reader), ids(exact(reader))) >= 0.9


def test_an_index_that_cannot_be_written_is_searched_all_the_same(encoder, tmp_path, caplog):
    path = tmp_path / "index"
    HopfieldRetriever.from_documents(made(0, 400), encoder=encoder, path=path)
    with WriterLock(path).held(), caplog.at_level(logging.WARNING):
        opened = HopfieldRetriever.from_pretrained(path, encoder=encoder, k=10, approximate=SETTINGS)
        assert shared(ids(opened), ids(exact(opened))) >= 0.9
    assert "The ANN index is not kept" in caplog.text
    assert not (path / APPROXIMATE_FILE).exists()


def test_nothing_of_what_was_deleted_is_left_after_compacting(encoder, tmp_path):
    path = tmp_path / "index"
    retriever = HopfieldRetriever.from_documents(made(0, 400), encoder=encoder, path=path, approximate=SETTINGS)
    vectors = len(ANNIndex.load(path / APPROXIMATE_FILE))
    retriever.delete(["d1", "d2"])
    assert len(ANNIndex.load(path / APPROXIMATE_FILE)) == vectors
    retriever.compact()
    stage = ANNIndex.load(path / APPROXIMATE_FILE)
    assert (len(stage.keys), stage.keys.min() >= 0, len(stage) < vectors) == (398, True, True)


def test_a_graph_that_the_index_does_not_ask_for_goes_when_it_is_compacted(encoder, tmp_path):
    path = tmp_path / "index"
    HopfieldRetriever.from_documents(made(0, 200), encoder=encoder, path=path)
    opened = HopfieldRetriever.from_pretrained(path, encoder=encoder, approximate=SETTINGS)
    opened.invoke(QUESTIONS[0])
    assert (path / APPROXIMATE_FILE).exists()
    opened.compact()
    assert not (path / APPROXIMATE_FILE).exists()
    assert shared(ids(opened), ids(exact(opened))) >= 0.9


def test_only_patterns_that_are_used_are_read_from_the_disk(encoder, tmp_path, monkeypatch):
    from langgraph_convcoa.retrieval.index import writer

    monkeypatch.setattr(writer, "BLOCK_ROWS", 64)
    path = tmp_path / "index"
    HopfieldRetriever.from_documents(made(0, 400), encoder=encoder, path=path, approximate=SETTINGS, lexical_weight=0.0)
    opened = HopfieldRetriever.from_pretrained(path, encoder=encoder, k=1)
    opened.invoke(QUESTIONS[0])
    snapshot = opened.corpus.snapshot()
    assert 0 < len(snapshot.checked) < len(snapshot.blocks)


def test_a_set_of_many_windows_does_not_crowd_out_the_rest(make):
    crowd = [Document(". ".join(f"Apple quince lime {i} {j}" for j in range(60)) + ".", id=f"c{i}") for i in range(3)]
    retriever = make([*made(0, 400), *crowd], k=30, lexical_weight=0.0)
    assert len(retriever.invoke("apple quince lime")) == 30


@pytest.mark.parametrize("wrong", [{"candidates": 0}, {"over": "words"}, {"m": 3}, "many"])
def test_settings_that_are_none_are_told_before_encoding(encoder, wrong):
    with pytest.raises(InputError, match="approximate"):
        HopfieldRetriever.from_documents(made(0, 5), encoder=encoder, approximate=wrong)
    assert encoder.passages == []


def test_without_usearch_it_is_told_before_encoding(encoder, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "usearch.index", None)
    with pytest.raises(RetrievalError, match=r"\[approximate\].*, or search exactly"):
        HopfieldRetriever.from_documents(made(0, 5), encoder=encoder, approximate=True)
    assert encoder.passages == []


def test_a_vector_store_is_never_certified():
    retriever = HopfieldRetriever.from_vectorstore(in_memory(), k=1)
    assert retriever.invoke("Who proposed sparsemax?")[0].metadata["certified"] is False


def test_what_a_killed_writer_left_of_a_graph_goes(encoder, tmp_path):
    retriever = HopfieldRetriever.from_documents(made(0, 20), encoder=encoder, path=tmp_path, approximate=SETTINGS)
    left = tmp_path / f".{APPROXIMATE_FILE}.0123.partial"
    left.touch()
    retriever.corpus.save_approximate(SETTINGS)
    assert not left.exists()
