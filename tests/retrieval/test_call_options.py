"""Options of a call in place of the retriever's, and documents that LangChain's retrievers of retrievers recognise."""

import json
import math

import pytest
from langchain_classic.retrievers import EnsembleRetriever, MergerRetriever, MultiQueryRetriever
from langchain_core.documents import Document
from langchain_core.load import dumps
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.index.database import Transaction
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from tests.retrieval.test_retriever import DOCUMENTS, HISTORY, ids, whole
from tests.retrieval.test_vectorstore import in_memory


@pytest.fixture(params=["memory", "disk"])
def retriever(request, tmp_path, encoder):
    path = tmp_path / "index" if request.param == "disk" else None
    return HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder, path=path)


OPTIONS = [
    {"filter": {"year": {"$gte": 2020}}},
    {"filter": {"$or": [{"year": {"$lt": 2020}}, {"tags": {"$contains": "maths"}}]}},
    {"filter": {"year": {"$in": [2020]}}, "k": 1},
    {"filter": lambda document: document.id != "dpr"},
    {"filter": {"$or": [lambda document: document.id == "dpr", {"year": 2016}]}},
    {"score_threshold": 0.2},
    {"score_threshold": -math.inf, "k": 2},
    {"score_threshold": math.inf},
    {"filter": {"year": 2020}, "score_threshold": 0.01, "history": HISTORY},
    {"filter": {}},
]


@pytest.mark.parametrize("options", OPTIONS)
async def test_an_option_of_a_call_is_that_of_a_retriever(retriever, options):
    question = "was it published in 2016?"
    settings = {name: value for name, value in options.items() if name != "history"}
    history = options.get("history")
    expected = whole(retriever.model_copy(update=settings).invoke(question, history=history))
    other = retriever.model_copy(update={"filter": {"year": 1}, "score_threshold": 9.0})
    for asked in (retriever, other):
        called = {"score_threshold": -math.inf, "filter": {}} | options if asked is other else options
        assert whole(asked.invoke(question, **called)) == expected
        assert whole(await asked.ainvoke(question, **called)) == expected
        batch_options = {name: value for name, value in called.items() if name != "history"}
        (hits,) = asked.search_batch([question], [history], **batch_options)
        assert [identity for identity, _ in hits] == [identity for identity, *_ in expected]
    # The retriever is as it was.
    assert (retriever.filter, retriever.score_threshold) == (None, None)
    assert len(retriever.invoke(question)) == 3


def test_the_retrievers_own_settings_hold_in_a_batch_too(retriever):
    strict = retriever.model_copy(update={"score_threshold": 0.5})
    assert [identity for identity, _ in strict.search_batch(["apples grow"])[0]] == ["apples"]
    assert strict.search_batch(["unheard"]) == [[]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"filter": {"source": {"$gt": 3}}}, "is the text 'sparsemax.md'; these have no order"),
        ({"filter": {"year": {"$lt": "2018"}}}, "compares with the text '2018'.* is the number"),
        ({"filter": "year"}, "a mapping or a function"),
        ({"score_threshold": math.nan}, "score_threshold must be a number or None, not nan"),
        ({"score_threshold": "0.5"}, "score_threshold must be a number or None, not '0.5'"),
        ({"score_threshold": True}, "score_threshold must be a number or None, not True"),
    ],
)
async def test_options_that_cannot_be_used(retriever, encoder, options, message):
    encoder.queries.clear()
    with pytest.raises(InputError, match=message) as caught:
        retriever.invoke("published", **options)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=message):
        await retriever.ainvoke("published", **options)
    with pytest.raises(InputError, match=message):
        retriever.search_batch(["published"], **options)


def test_a_filter_that_changes_in_place_is_another(retriever):
    condition = {"year": {"$in": [2016]}}
    assert ids(retriever.invoke("published", filter=condition)) == ["sparsemax"]
    condition["year"]["$in"].append(2020)
    assert len(retriever.invoke("published", filter=condition)) == 3
    allowed = {"dpr"}
    joined = {"$or": [lambda document: document.id in allowed]}
    assert ids(retriever.invoke("published", filter=joined)) == ["dpr"]
    allowed.add("apples")
    assert set(ids(retriever.invoke("published", filter=joined))) == {"dpr", "apples"}


def test_filters_by_turns_read_an_index_once_each(tmp_path, encoder, monkeypatch):
    retriever = HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder, path=tmp_path / "index")
    reads, without_texts = [], Transaction.without_texts
    monkeypatch.setattr(Transaction, "without_texts", lambda self: reads.append(self) or without_texts(self))
    for _ in range(3):
        for year in (2016, 2020):
            found = retriever.invoke("published", filter={"year": {"$eq": year}})
            assert {document.metadata["year"] for document in found} == {year}
    assert len(reads) == 2
    for year in range(100):
        retriever.invoke("published", filter={"year": year})
    assert len(retriever.corpus.snapshot()._masks) == 16
    retriever.delete(["dpr"])
    assert ids(retriever.invoke("published", filter={"year": {"$eq": 2020}})) == ["apples"]


def test_operators_over_a_vector_store():
    retriever = HopfieldRetriever.from_vectorstore(in_memory())
    found = retriever.invoke("sparsemax", filter={"year": {"$lt": 2000}}, score_threshold=-9)
    assert ids(found) == ["pears"]
    assert retriever.invoke("sparsemax", score_threshold=9) == []


def test_a_filter_with_operators_is_kept_with_an_index(tmp_path, encoder):
    condition = {"$or": [{"year": {"$gt": 2018}}, {"year": {"$exists": False}}]}
    HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder, filter=condition, path=tmp_path / "index")
    opened = HopfieldRetriever.from_pretrained(tmp_path / "index", encoder=encoder)
    assert opened.filter == condition
    assert set(ids(opened.invoke("published"))) == {"dpr", "apples"}


def test_scores_are_within_the_range_that_is_stated(retriever):
    texts = [document.page_content for document in DOCUMENTS]
    scores = [score for hits in retriever.search_batch([*texts, "unheard", "apples"], k=3) for _, score in hits]
    assert max(scores) <= 2 + retriever.lexical_weight + 1e-5
    assert min(scores) >= -2
    # The text of a passage itself is the best there is.
    assert retriever.invoke("Apples grow on trees.", k=1)[0].metadata["score"] == pytest.approx(2.1, abs=1e-4)


# Documents that are equal ---------------------------------------------------------------------------------------------------


def test_a_passage_that_two_questions_found_is_equal(retriever):
    one, other = (retriever.invoke(question, k=3) for question in ("who proposed sparsemax?", "rivers are wet"))
    first, again = (next(document for document in found if document.id == "sparsemax") for found in (one, other))
    assert first.metadata["score"] != again.metadata["score"]
    assert first.metadata["quote"] != again.metadata["quote"]
    assert first == again
    assert (first != again) is False
    assert again in one
    assert one[0] != one[1]
    assert first != Document(first.page_content, id=first.id, metadata=dict(first.metadata) | {"year": 1})
    assert first == Document(first.page_content, id=first.id, metadata=dict(first.metadata) | {"score": 0.0})
    assert first.metadata != 3


def test_a_found_document_is_plain_when_it_is_stored(retriever):
    (found,) = retriever.invoke("sparsemax", k=1)
    (expected,) = whole([found])
    serializer = JsonPlusSerializer()
    copies = [
        Document(**found.model_dump()),
        Document.model_validate_json(found.model_dump_json()),
        serializer.loads_typed(serializer.dumps_typed({"found": [found]}))["found"][0],
    ]
    assert json.loads(dumps(found))["kwargs"]["metadata"] == expected[2]
    for copied in copies:
        assert type(copied) is Document
        assert type(copied.metadata) is dict
        assert whole([copied]) == [expected]


async def test_several_queries_of_one_question_find_each_passage_once(retriever):
    lines = RunnableLambda(lambda inputs: ["rivers are wet", "published in 2020", inputs["question"]])
    several = MultiQueryRetriever(retriever=retriever, llm_chain=lines)
    found = several.invoke("who proposed sparsemax?")
    assert len(found) == 3
    assert set(ids(found)) == {"sparsemax", "dpr", "apples"}
    assert sorted(ids(await several.ainvoke("who proposed sparsemax?"))) == sorted(ids(found))


@pytest.mark.parametrize("id_key", [None, "name"])
async def test_an_ensemble_counts_a_passage_of_two_retrievers_once(encoder, id_key):
    documents = [Document(d.page_content, id=d.id, metadata={"name": d.id}) for d in DOCUMENTS]
    retriever = HopfieldRetriever.from_documents(documents, encoder=encoder)
    other = retriever.model_copy(update={"beta": math.inf, "lexical_weight": 0.0, "return_association": True})
    ensemble = EnsembleRetriever(retrievers=[retriever, other], weights=[0.5, 0.5], id_key=id_key)
    assert sorted(ids(ensemble.invoke("karpukhin"))) == ["apples", "dpr", "sparsemax"]
    assert ids(await ensemble.ainvoke("karpukhin"))[0] == "dpr"
    # MergerRetriever, by its definition, keeps all.
    assert len(MergerRetriever(retrievers=[retriever, other]).invoke("karpukhin")) == 6
