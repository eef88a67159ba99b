"""Documents added, fetched and deleted as LangChain's vector stores and its indexing API do it."""

import pytest
from langchain_core.documents import Document
from langchain_core.indexing import DocumentIndex, InMemoryRecordManager, aindex, index

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.memory_corpus import MemoryCorpus
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from tests.retrieval.test_vectorstore import in_memory

BOOK = Document("One apple fell. " * 20 + "\n\n" + "Two pears fell. " * 20, id="book", metadata={"page": 4, "source": "book"})
DOCUMENTS = [Document("Quinces are sour.", id="q", metadata={"n": [1]}), Document("Sloes are blue.", id="s"), BOOK]


@pytest.fixture(params=["memory", "disk"])
def retriever(request, tmp_path, encoder):
    if request.param == "memory":
        return HopfieldRetriever(corpus=MemoryCorpus(), encoder=encoder, k=50)
    return HopfieldRetriever.from_documents([], encoder=encoder, k=50, path=tmp_path / "index")


def held(retriever):
    return sorted(document.page_content for document in retriever.invoke("text"))


@pytest.fixture
def records():
    manager = InMemoryRecordManager("test")
    manager.create_schema()
    return manager


def text(content, source):
    return Document(f"The text {content}.", metadata={"source": source})


def run(documents, records, retriever, **options):
    result = index(documents, records, retriever, key_encoder="sha256", **options)
    return [result[f"num_{what}"] for what in ("added", "updated", "skipped", "deleted")]


def test_without_a_cleanup_nothing_goes(retriever, records):
    first = [text("a", "1"), text("b", "1"), text("c", "2")]
    assert isinstance(retriever, DocumentIndex)
    assert run([*first, first[0]], records, retriever) == [3, 0, 1, 0]
    assert run(first, records, retriever) == [0, 0, 3, 0]
    assert run([text("changed", "1")], records, retriever) == [1, 0, 0, 0]
    assert held(retriever) == ["The text a.", "The text b.", "The text c.", "The text changed."]
    assert run(first, records, retriever, force_update=True) == [0, 3, 0, 0]
    assert len(held(retriever)) == 4


A, B, C, D, CHANGED = (text(*what) for what in (("a", "1"), ("b", "1"), ("c", "2"), ("d", "3"), ("changed", "1")))


@pytest.mark.parametrize(
    ("options", "runs"),
    [
        ({"cleanup": "incremental"}, [([A, C], [2, 0, 0, 0]), ([CHANGED], [1, 0, 0, 1]), ([], [0, 0, 0, 0])]),
        ({"cleanup": "incremental", "batch_size": 1}, [([A, C], [2, 0, 0, 0]), ([CHANGED], [1, 0, 0, 1])]),
        ({"cleanup": "full"}, [([A, C, BOOK], [3, 0, 0, 0]), ([C, CHANGED], [1, 0, 1, 2])]),
        ({"cleanup": "scoped_full"}, [([A, B, C], [3, 0, 0, 0]), ([CHANGED], [1, 0, 0, 2])]),
    ],
    ids=["incremental", "one by one", "full", "scoped"],
)
def test_a_cleanup_leaves_what_langchain_says(retriever, records, options, runs):
    for documents, counts in runs:
        assert run(documents, records, retriever, source_id_key="source", **options) == counts
    assert held(retriever) == ["The text c.", "The text changed."]
    assert run([], records, retriever, cleanup="full") == [0, 0, 0, 2]
    assert retriever.invoke("text") == []


def test_what_went_by_another_way_does_not_stop_a_cleanup(retriever, records):
    run([text("a", "1"), text("b", "1")], records, retriever, cleanup="full")
    retriever.delete([document.id for document in retriever.invoke("text a", k=1)])
    assert run([], records, retriever, cleanup="full") == [0, 0, 0, 2]


async def test_the_asynchronous_api(retriever, records):
    options = {"cleanup": "full", "key_encoder": "sha256"}
    await aindex([text("a", "1"), text("b", "1")], records, retriever, **options)
    result = await aindex([text("b", "1"), text("c", "1")], records, retriever, **options)
    assert (result["num_added"], result["num_skipped"], result["num_deleted"]) == (1, 1, 1)
    assert held(retriever) == ["The text b.", "The text c."]


def test_documents_are_fetched_by_their_ids(retriever):
    retriever.add_documents(DOCUMENTS)
    found = retriever.get_by_ids(["s", "nobody", "q", "q"])
    assert found == [DOCUMENTS[1], DOCUMENTS[0]]
    found[1].metadata["n"].append(2)
    assert retriever.get(["q"])[0].metadata == {"n": [1]}
    assert retriever.get_by_ids([]) == []
    with pytest.raises(InputError, match="a list of texts, not int"):
        retriever.get_by_ids(3)


def test_a_long_document_is_fetched_whole_or_in_part(retriever):
    retriever.add_documents(DOCUMENTS)
    (book,) = retriever.get_by_ids(["book"])
    assert (book.id, book.metadata) == ("book", BOOK.metadata)
    assert book.page_content.split() == BOOK.page_content.split()
    (part,) = retriever.get_by_ids(["book#2"])
    assert book.page_content[part.metadata["start"] :].startswith(part.page_content)
    assert BOOK.page_content[part.metadata["start"] :].startswith(part.page_content)
    with pytest.raises(InputError, match="'book#2' is a passage of 'book', which can only be deleted as a whole"):
        retriever.delete(["q", "book#2"])
    assert retriever.delete(["book", "nobody"])["succeeded"] == ["book"]
    assert retriever.get_by_ids(["book", "book#2"]) == []


def test_delete_says_what_went(retriever):
    retriever.add_documents(DOCUMENTS)
    answer = retriever.delete(["q", "nobody", "q"])
    assert answer == {"num_deleted": 1, "succeeded": ["q"], "num_failed": 0, "failed": []}
    assert retriever.delete([])["num_deleted"] == 0
    assert retriever.delete("s")["succeeded"] == ["s"]
    with pytest.raises(ValueError, match="needs the ids"):
        retriever.delete()


def test_upsert_replaces_by_id(retriever):
    assert retriever.upsert(DOCUMENTS) == {"succeeded": ["q", "s", "book"], "failed": []}
    retriever.upsert([Document("Quinces are hard.", id="q")])
    assert retriever.get_by_ids(["q"])[0].page_content == "Quinces are hard."


def test_texts_and_ids_of_a_call(retriever, tmp_path):
    assert retriever.add_texts(["One.", "Two."], [{"n": 1}, {"n": 2}], ids=["a", "b"]) == ["a", "b"]
    assert retriever.get_by_ids(["b"]) == [Document("Two.", id="b", metadata={"n": 2})]
    (own,) = retriever.add_texts(["Three."], cache=tmp_path / "patterns.sqlite")
    assert retriever.get_by_ids([own])[0].page_content == "Three."
    assert retriever.add_documents([Document("Four.", id="x")], ids=["d"]) == ["d"]
    assert retriever.get_by_ids(["x", "d"]) == [Document("Four.", id="d")]
    for wrong, message in (
        (lambda: retriever.add_texts(["a", "b"], [{}]), "2 texts, 1 metadatas and 2 ids"),
        (lambda: retriever.add_texts("one text"), "a list of texts"),
        (lambda: retriever.add_documents([Document("x")], ids=["a", "b"]), "1 documents and 2 ids"),
    ):
        with pytest.raises(InputError, match=message):
            wrong()
    with pytest.raises(RetrievalError, match="'a' is there already"):
        retriever.add_texts(["Other."], ids=["a"])


async def test_the_asynchronous_forms(retriever):
    assert await retriever.aadd_documents(DOCUMENTS) == ["q", "s", "book"]
    assert await retriever.aadd_texts(["One."], ids=["a"]) == ["a"]
    assert await retriever.aupdate([Document("Sloes are black.", id="s")]) == ["s"]
    assert [d.page_content for d in await retriever.aget_by_ids(["s", "a"])] == ["Sloes are black.", "One."]
    assert (await retriever.adelete(["q", "nobody"]))["succeeded"] == ["q"]
    assert (await retriever.aupsert([Document("Two.", id="a")]))["succeeded"] == ["a"]
    assert [d.page_content for d in await retriever.aget(["a", "q"])] == ["Two."]


def test_a_vector_store_is_changed_itself(tmp_path):
    retriever = HopfieldRetriever.from_vectorstore(in_memory())
    for change in (
        lambda: retriever.add_texts(["x"]),
        lambda: retriever.upsert([Document("x")]),
        lambda: retriever.delete(["a"]),
        lambda: retriever.get_by_ids(["a"]),
        lambda: retriever.save_pretrained(tmp_path),
    ):
        with pytest.raises(InputError, match="the store itself"):
            change()
