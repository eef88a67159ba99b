"""The retriever over an engine: the same ranking as over the same documents in memory, and documents that change."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest
from langchain_core.documents import Document

from langgraph_convcoa import build_graph
from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.engine.choose import open_engine
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from tests.bounds import SECONDS
from tests.fake_encoder import WordEncoder
from tests.fakes import ScriptedModel, documents, node, plan
from tests.loopback import unused_port
from tests.memory_engine import MemoryEngine

_ENCODER = WordEncoder()
_SYLLABLES = [a + b + c for a in "bdfgkm" for b in "aeiou" for c in ("nt", "rk", "st")]
LONG = Document(
    "One apple fell on the roof. " * 60 + "\n\n" + "Two pears fell on the grass. " * 60, id="book", metadata={"page": 4}
)


def made_up(count: int) -> list[Document]:
    rng = random.Random(1)

    def sentence() -> str:
        return " ".join(rng.choices(_SYLLABLES, k=7)).capitalize()

    return [
        Document(
            ". ".join(sentence() for _ in range(rng.randint(1, 8))) + ".",
            id=f"d{number}",
            metadata={"year": 2000 + number % 20, "title": rng.choice(_SYLLABLES)} if number % 3 else {},
        )
        for number in range(count)
    ]


@pytest.fixture(scope="module")
def shared(pgvector: str) -> tuple[str, HopfieldRetriever]:
    """An engine that was filled, and the same in memory."""
    address, there = f"{pgvector}?collection=shared", [*made_up(120), LONG]
    HopfieldRetriever.from_engine(address, encoder=_ENCODER).add_documents(there)
    return address, HopfieldRetriever.from_documents(there, encoder=_ENCODER, graph=None)


@pytest.fixture
def retriever(address: str) -> HopfieldRetriever:
    return HopfieldRetriever.from_engine(address, encoder=_ENCODER, k=5)


def found(documents: list[Document]) -> list[tuple[str | None, float]]:
    return [(document.id, round(document.metadata["score"], 5)) for document in documents]


@pytest.mark.parametrize("exact", ["", "&exact=0"], ids=["compared", "hnsw"])
def test_passages_and_scores_are_those_of_a_search_of_everything(shared, exact):
    address, memory = shared
    engine = HopfieldRetriever.from_engine(address + exact, encoder=_ENCODER, candidates=100)
    rng = random.Random(2)
    for number in range(15):
        words = [" ".join(rng.choices(_SYLLABLES, k=4)) for _ in range(3)]
        options = {"k": 1 + number, "history": [(words[1], words[2])] if number % 2 else None}
        options |= {"filter": {"year": {"$gte": 2012}}} if number % 3 == 0 else {}
        options |= {"score_threshold": 0.3} if number % 5 == 0 else {}
        ours, expected = engine.invoke(words[0], **options), memory.invoke(words[0], **options)
        assert found(ours) == found(expected), options
        for one, other in zip(ours, expected, strict=True):
            assert (one.page_content, one.metadata) == (other.page_content, other.metadata)
            assert one.metadata["quote"] == other.metadata["quote"]
            assert (one.metadata["certified"], other.metadata["certified"]) == (False, True)


@pytest.mark.parametrize(
    "settings", [{"lexical_weight": 0.0}, {"passage_weight": 0.0, "beta": math.inf}, {"lexical_history": 0.0}]
)
def test_settings_of_the_score_count_as_elsewhere(shared, settings):
    address, memory = shared
    engine = HopfieldRetriever.from_engine(address, encoder=_ENCODER, candidates=100, **settings)
    asked = {"history": [("bant dark", "gost")], "k": 8}
    assert found(engine.invoke("kark mest", **asked)) == found(memory.model_copy(update=settings).invoke("kark mest", **asked))


async def test_it_is_asked_asynchronously_and_in_batches(shared):
    address, memory = shared
    engine = HopfieldRetriever.from_engine(address, encoder=_ENCODER, candidates=100, k=4)
    assert found(await engine.ainvoke("bant dark")) == found(memory.invoke("bant dark", k=4))
    queries, histories = ["bant dark", "gost mest"], [None, [("kark", "")]]
    ours, expected = (one.search_batch(queries, histories, 4) for one in (engine, memory))
    assert [[(name, round(score, 5)) for name, score in row] for row in ours] == [
        [(name, round(score, 5)) for name, score in row] for row in expected
    ]


def test_parts_come_with_those_beside_them(shared):
    address, memory = shared
    engine = HopfieldRetriever.from_engine(address, encoder=_ENCODER)
    for k in (1, 2):
        ours, expected = (one.invoke("two pears and an apple", k=k, neighbours=1) for one in (engine, memory))
        assert any("part" in one.metadata for one in ours) or k == 2, "of two that stand side by side neither comes twice"
        assert [(one.page_content, one.metadata["start"], one.metadata.get("part")) for one in ours] == [
            (one.page_content, one.metadata["start"], one.metadata.get("part")) for one in expected
        ]


def test_documents_are_added_updated_and_deleted_as_elsewhere(retriever):
    assert retriever.add_documents([Document("Ada wrote it.", id="a"), LONG, Document("  ", id="empty")]) == ["a", "book"]
    encoded = len(_ENCODER.encoded)
    assert retriever.add_documents([Document("Ada wrote it.", id="a"), LONG]) == ["a", "book"]
    assert len(_ENCODER.encoded) == encoded, "what is there is not encoded again"
    with pytest.raises(RetrievalError, match="there already with another content"):
        retriever.add_documents([Document("Grace wrote it.", id="a")])
    assert retriever.update([Document("Grace wrote it.", id="a")]) == ["a"]
    assert [one.page_content for one in retriever.get_by_ids(["a", "nothing"])] == ["Grace wrote it."]
    memory = HopfieldRetriever.from_documents([LONG], encoder=_ENCODER, graph=None)
    assert retriever.get_by_ids(["book"]) == memory.get_by_ids(["book"])
    assert retriever.get_by_ids(["book#2"])[0].metadata["document_id"] == "book"
    with pytest.raises(InputError, match="is a passage of 'book', which can only be deleted as a whole"):
        retriever.delete(["a", "book#1"])
    assert len(retriever.corpus) > 2
    assert retriever.delete(["book", "nothing"])["succeeded"] == ["book"]
    retriever.compact()
    assert (len(retriever.corpus), [one.id for one in retriever.invoke("apple")]) == (1, ["a"])


def test_an_engine_with_nothing_in_it_finds_nothing(retriever):
    with pytest.raises(RetrievalError, match="is not there; add documents"):
        retriever.invoke("text")
    assert (retriever.delete(["a"])["num_deleted"], retriever.get_by_ids(["a"])) == (0, [])
    retriever.add_documents([Document("One.", id="a")])
    retriever.delete(["a"])
    assert retriever.invoke("text") == []


def test_a_function_is_no_filter_of_an_engine_and_other_settings_are_checked(retriever, address, tmp_path):
    retriever.add_documents([Document("text", id="a")])
    with pytest.raises(InputError, match="must be a mapping"):
        retriever.invoke("text", filter=lambda passage: True)
    with pytest.raises(InputError, match="over an engine, which keeps the documents"):
        retriever.save_pretrained(tmp_path / "index")
    with pytest.raises(InputError, match="candidates must be"):
        HopfieldRetriever.from_engine(address, encoder=_ENCODER, candidates=0)
    with pytest.raises(InputError, match="not the address of an engine"):
        HopfieldRetriever.from_engine("indexes/manuals", encoder=_ENCODER)


def test_each_tenant_has_its_own_words_and_documents(address):
    one, other = (HopfieldRetriever.from_engine(address, tenant=name, encoder=_ENCODER) for name in ("one", "other"))
    one.add_documents([Document("apple pear", id="a")])
    other.add_documents([Document("apple fig", id="a"), Document("apple", id="b")])
    assert [doc.page_content for doc in one.invoke("apple fig")] == ["apple pear"]
    memory = HopfieldRetriever.from_texts(["apple pear"], ids=["a"], encoder=_ENCODER)
    assert found(one.invoke("apple fig")) == found(memory.invoke("apple fig"))


def test_another_encoder_is_refused_before_it_is_asked(retriever, address):
    class Other(WordEncoder):
        name = "others"

    retriever.add_documents([Document("text", id="a")])
    other = HopfieldRetriever.from_engine(address, encoder=Other())
    for ask in (lambda: other.invoke("text"), lambda: other.add_documents([Document("more", id="b")]), other.check_encoder):
        with pytest.raises(RetrievalError, match="was encoded by 'words'"):
            ask()
    assert len(retriever.corpus) == 1


def test_a_retriever_closes_its_engine_when_its_block_ends():
    class Closing(MemoryEngine):
        closed = 0

        def close(self) -> None:
            self.closed += 1

    with HopfieldRetriever.from_engine(Closing(), encoder=_ENCODER) as retriever:
        assert not retriever.corpus.engine.closed
    assert retriever.corpus.engine.closed == 1


def down(_address: str, _connection: Any) -> AbstractContextManager[str]:
    return nullcontext(f"postgresql://u:hunter22@127.0.0.1:{unused_port()}/x?collection=c")


def milvus_down(_address: str, _connection: Any) -> AbstractContextManager[str]:
    pytest.importorskip("pymilvus")
    return nullcontext(f"milvus://u:hunter22@127.0.0.1:{unused_port()}/x?collection=c")


@contextmanager
def slow(address: str, connection: Any) -> Iterator[str]:
    """A statement does not end, until it is left."""
    with connection.transaction():
        connection.execute(f"LOCK TABLE convcoa_{open_engine(address).collection}_passages")
        yield address


@contextmanager
def of_another_version(address: str, connection: Any) -> Iterator[str]:
    change, name = "UPDATE convcoa_collections SET version = %s WHERE name = %s", open_engine(address).collection
    connection.execute(change, [99, name])
    yield address
    connection.execute(change, [1, name])


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize(
    ("wrong", "timeout", "reason"),
    [
        (down, 30, "cannot be reached"),
        (milvus_down, 0.5, "cannot be reached within 0.5 s"),
        (slow, 0.5, "did not answer within 0.5 s"),
        (of_another_version, 30, "is of version 99, and this library reads version 1"),
    ],
    ids=["down", "milvus down", "slow", "version"],
)
def test_in_a_turn_an_engine_that_fails_costs_its_items_and_no_more(address, connection, wrong, timeout, reason):
    HopfieldRetriever.from_engine(address, encoder=_ENCODER).add_documents(documents())
    chain = plan(node("Who described the Hopfield network?"), node("When?", "In 1982.", action="tool"), final="In 1982.")
    asked = {"question": "Who described the Hopfield network?"}

    def answered(place: str, timeout: float) -> dict[str, Any]:
        with HopfieldRetriever.from_engine(place, timeout=timeout, encoder=_ENCODER) as retriever:
            graph = build_graph(model=ScriptedModel(by_prompt=lambda prompt: chain), retriever=retriever).compile()
            return dict(graph.invoke(asked))

    with wrong(address, connection) as place:
        out = answered(place, timeout)
    assert out["chain"][0]["status"] == "failed"
    assert reason in out["chain"][0]["reason"]
    assert "hunter22" not in str(out)
    assert out["chain"][1]["guess_answer"] == "In 1982."
    assert out["answer"]
    assert answered(address, 30)["chain"][0]["status"] != "failed"


def test_all_calls_of_a_search_have_the_time_out_together(address, monkeypatch):
    HopfieldRetriever.from_engine(address, encoder=_ENCODER).add_documents(documents())
    retriever = HopfieldRetriever.from_engine(address, timeout=0.8, encoder=_ENCODER)
    connections = retriever.corpus.engine._connections
    real = connections.run

    def late(*arguments: Any, **named: Any) -> Any:
        time.sleep(0.3)
        return real(*arguments, **named)

    monkeypatch.setattr(connections, "run", late)
    with retriever, pytest.raises(RetrievalError, match=r"did not answer within 0\.8 s"):
        retriever.invoke("Who described the Hopfield network?")
