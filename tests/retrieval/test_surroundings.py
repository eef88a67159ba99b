"""Parts of a document come with the parts beside them, each once."""

from __future__ import annotations

import asyncio
from itertools import combinations

import pytest
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from tests.retrieval.test_vectorstore import WordEmbeddings

TEXTS = {
    name: "\n\n".join(f"Paragraph {n} of {name} speaks of {name}{n} and of nothing else in the wide world." for n in range(30))
    for name in ("apples", "pears", "plums")
}
DOCUMENTS = [Document(text, id=name, metadata={"page": 4}) for name, text in TEXTS.items()]
SHORT = Document("A short one speaks of cherries.", id="cherries")


@pytest.fixture(params=["memory", "index"])
def retriever(request, encoder, tmp_path):
    found = HopfieldRetriever.from_documents([*DOCUMENTS, SHORT], encoder=encoder, k=3)
    if request.param == "memory":
        return found
    found.save_pretrained(tmp_path / "index")
    return HopfieldRetriever.from_pretrained(tmp_path / "index", encoder=encoder)


def squeezed(text):
    return " ".join(text.split())


@pytest.mark.parametrize("neighbours", [1, 2, 7])
def test_a_part_comes_with_what_stands_beside_it(retriever, neighbours):
    (alone,) = retriever.invoke("apples17", k=1)
    (found,) = retriever.invoke("apples17", k=1, neighbours=neighbours)
    assert found.id == alone.id
    assert found.metadata["quote"] == alone.metadata["quote"]
    assert found.metadata["score"] == pytest.approx(alone.metadata["score"])
    first, last = found.metadata["part"]
    assert found.page_content[first:last] == alone.page_content
    assert len(found.page_content) > len(alone.page_content)
    assert squeezed(found.page_content) in squeezed(TEXTS["apples"])
    assert squeezed(TEXTS["apples"][found.metadata["start"] :]).startswith(squeezed(found.page_content))
    if neighbours == 7:
        assert squeezed(found.page_content) == squeezed(TEXTS["apples"])


def test_what_two_questions_found_with_its_neighbours_is_equal(retriever):
    (one,) = retriever.invoke("apples17", k=1, neighbours=1)
    (other,) = retriever.invoke("what of apples17 in the world", k=1, neighbours=1)
    assert one.id == other.id
    assert one.metadata["score"] != other.metadata["score"]
    assert one == other


def test_k_counts_what_comes_and_no_part_comes_twice(retriever):
    found = retriever.invoke("apples17 pears3 plums9 apples3 apples4", k=4, neighbours=1)
    assert len(found) == 4
    parted = [d for d in found if "document_id" in d.metadata]
    for one, other in combinations(parted, 2):
        if one.metadata["document_id"] == other.metadata["document_id"]:
            words = set(one.page_content.split("\n")) & set(other.page_content.split("\n"))
            assert not {word for word in words if word.strip()}


def test_what_is_no_part_comes_as_it_is(retriever):
    (found,) = retriever.invoke("cherries", k=1, neighbours=3)
    assert found.page_content == SHORT.page_content
    assert "part" not in found.metadata


def test_async_gives_the_same(retriever):
    plain = retriever.invoke("pears3", neighbours=1)
    assert asyncio.run(retriever.ainvoke("pears3", neighbours=1)) == plain


def test_a_deleted_document_is_beside_nothing(retriever, encoder):
    retriever.delete(["pears"])
    found = retriever.invoke("plums0", k=1, neighbours=2)[0]
    assert squeezed(found.page_content) in squeezed(TEXTS["plums"])
    retriever.add_documents([Document(TEXTS["pears"], id="pears")])
    found = retriever.invoke("pears0", k=1, neighbours=2)[0]
    assert squeezed(found.page_content) in squeezed(TEXTS["pears"])


def test_windows_are_counted_in_the_longer_text(encoder):
    retriever = HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder, return_association=True)
    (found,) = retriever.invoke("apples17", k=1, neighbours=1)
    for window in found.metadata["association"]:
        assert found.page_content[window["start"] : window["end"]] == window["text"]


def test_candidates_of_a_vector_store_join_only_where_they_go_on(encoder):
    parts = HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder).invoke("apples", k=12)
    store = InMemoryVectorStore(WordEmbeddings())
    apples = sorted((p for p in parts if p.metadata["document_id"] == "apples"), key=lambda p: p.metadata["start"])
    assert len(apples) >= 4
    store.add_documents([apples[0], apples[1], apples[3]])
    retriever = HopfieldRetriever.from_vectorstore(store, encoder=encoder)
    for found in retriever.invoke("apples0 apples1", neighbours=3):
        assert squeezed(found.page_content) in squeezed(TEXTS["apples"])


@pytest.mark.parametrize("neighbours", [-1, True, 1.5, "1"])
def test_bad_neighbours(retriever, neighbours):
    with pytest.raises(InputError, match="neighbours must be a whole number"):
        retriever.invoke("apples", neighbours=neighbours)
