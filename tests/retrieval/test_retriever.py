import asyncio
import math
import threading

import pytest
from langchain_classic.chains import create_retrieval_chain
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_tests.integration_tests import RetrieversIntegrationTests

from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from langgraph_convcoa.retrieval.memory_corpus import MemoryCorpus, build_memory
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from tests.fakes import documents as facts
from tests.retrieval.test_vectorstore import in_memory

DOCUMENTS = [
    Document(
        "Sparsemax was proposed by Martins. It was published in 2016. It gives sparse weights. Rivers are wet.",
        id="sparsemax",
        metadata={"source": "sparsemax.md", "year": 2016, "tags": ["maths"]},
    ),
    Document(
        "Dense passage retrieval was proposed by Karpukhin. It was published in 2020.", id="dpr", metadata={"year": 2020}
    ),
    Document("Apples grow on trees.", id="apples", metadata={"year": 2020}),
]
HISTORY = [("Who proposed sparsemax?", "Martins proposed sparsemax.")]


@pytest.fixture
def retriever(encoder):
    return HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder, k=2)


def ids(documents):
    return [document.id for document in documents]


def whole(documents):
    """All that documents hold; by themselves they are compared without their scores."""
    return [(document.id, document.page_content, dict(document.metadata)) for document in documents]


def test_a_document_carries_id_source_score_and_quote(retriever):
    found = retriever.invoke("who proposed sparsemax?")
    assert ids(found)[0] == "sparsemax"
    assert found[0].metadata["source"] == "sparsemax.md"
    assert (
        found[0].metadata["quote"] == "Sparsemax was proposed by Martins. It was published in 2016. It gives sparse weights."
    )
    assert found[0].metadata["year"] == 2016
    assert isinstance(found[0].metadata["score"], float)
    assert found[0].metadata["score"] > found[1].metadata["score"]
    assert found[1].metadata["source"] == found[1].id
    assert "association" not in found[0].metadata


def test_what_is_returned_is_the_callers_to_change(retriever):
    found = retriever.invoke("sparsemax")[0]
    found.metadata["tags"].append("mine")
    found.metadata["year"] = 1
    again = retriever.invoke("sparsemax")[0]
    assert again.metadata["tags"] == ["maths"]
    assert again.metadata["year"] == 2016
    assert "score" not in DOCUMENTS[0].metadata


def test_the_association_says_which_windows_matched(encoder):
    retriever = HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder, return_association=True, beta=3.0)
    found = retriever.invoke("rivers are wet")[0]
    association = found.metadata["association"]
    assert [found.page_content[part["start"] : part["end"]] for part in association] == [part["text"] for part in association]
    assert sum(part["weight"] for part in association) == pytest.approx(1)
    assert max(association, key=lambda part: part["weight"])["text"] == found.metadata["quote"]
    assert found.metadata["quote"].endswith("Rivers are wet.")


@pytest.mark.parametrize("beta", [0, math.inf])
def test_the_quote_is_the_best_window_at_the_ends_of_beta_too(encoder, beta):
    retriever = HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder, beta=beta)
    assert retriever.invoke("rivers are wet")[0].metadata["quote"].endswith("Rivers are wet.")


def test_a_follow_up_needs_its_history(retriever):
    alone = retriever.invoke("when was it published?", k=1)
    assert ids(alone) == ["dpr"]
    assert ids(retriever.invoke("when was it published?", k=1, history=HISTORY)) == ["sparsemax"]
    messages = [HumanMessage(HISTORY[0][0]), AIMessage(HISTORY[0][1])]
    assert ids(retriever.invoke("when was it published?", k=1, history=messages)) == ["sparsemax"]


def test_history_weight_zero_is_no_history(encoder):
    retriever = HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder, history_weight=0)
    assert whole(retriever.invoke("when was it published?", history=HISTORY)) == whole(
        retriever.invoke("when was it published?")
    )


async def test_async_gives_the_same_off_the_event_loop(retriever, encoder):
    threads = []
    encode = encoder.encode_queries
    encoder.encode_queries = lambda texts: threads.append(threading.current_thread()) or encode(texts)
    found = await retriever.ainvoke("when was it published?", k=1, history=HISTORY)
    assert ids(found) == ["sparsemax"]
    assert threads
    assert threading.main_thread() not in threads
    assert [ids(part) for part in await retriever.abatch(["apples", "karpukhin"])] == [
        ["apples", "sparsemax"],
        ["dpr", "sparsemax"],
    ]


def test_k_of_a_call_goes_before_that_of_the_retriever_and_may_be_large(retriever):
    assert len(retriever.invoke("sparsemax")) == 2
    assert len(retriever.invoke("sparsemax", k=1)) == 1
    assert len(retriever.invoke("sparsemax", k=10_000)) == 3


def test_batch_search_gives_ids_and_scores_as_invoke_does(retriever):
    queries = ["apples", "when was it published?"]
    found = retriever.search_batch(queries, [None, HISTORY], k=3)
    single = [retriever.invoke(queries[0], k=3), retriever.invoke(queries[1], k=3, history=HISTORY)]
    assert [[identity for identity, _ in hits] for hits in found] == [ids(documents) for documents in single]
    for hits, documents in zip(found, single, strict=True):
        assert [score for _, score in hits] == pytest.approx([document.metadata["score"] for document in documents], abs=1e-6)
    assert retriever.search_batch([]) == []
    with pytest.raises(InputError, match="2 queries and 1 histories"):
        retriever.search_batch(queries, [None])


def test_long_documents_come_back_in_passages(encoder):
    text = "\n\n".join(f"Paragraph {n} speaks of subject{n} and of nothing else at all in the wide world." for n in range(30))
    retriever = HopfieldRetriever.from_documents([Document(text, id="book", metadata={"page": 4})], encoder=encoder)
    found = retriever.invoke("subject17")[0]
    assert found.id.startswith("book#")
    assert "subject17" in found.metadata["quote"]
    assert text[found.metadata["start"] :].startswith(found.page_content)
    assert found.metadata["page"] == 4
    assert found.metadata["source"] == "book"


def test_from_texts(encoder):
    retriever = HopfieldRetriever.from_texts(
        ["apples grow", "pears fall"], [{"n": 1}, {"n": 2}], ids=["a", "b"], encoder=encoder, k=1
    )
    (found,) = retriever.invoke("pears")
    assert (found.id, found.metadata["n"]) == ("b", 2)
    assert ids(HopfieldRetriever.from_texts(["pears"], encoder=encoder).invoke("pears"))[0]


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_an_empty_retriever_takes_documents_later(encoder, dtype):
    retriever = HopfieldRetriever.from_texts([], encoder=encoder, dtype=dtype)
    assert retriever.invoke("pears") == []
    retriever.add_texts(["apples grow", "pears fall"], ids=["a", "b"])
    assert ids(retriever.invoke("pears", k=1)) == ["b"]
    assert retriever.corpus.snapshot().patterns.dtype == dtype


def test_an_existing_index_is_added_to_and_says_so(encoder, tmp_path, caplog):
    for text in ("apples grow", "pears fall"):
        retriever = HopfieldRetriever.from_texts([text], encoder=encoder, path=tmp_path / "index")
    assert len(retriever.corpus) == 2
    assert [line for line in caplog.messages if "index" in line] == [
        f"{tmp_path / 'index'} exists: the documents are added to its 1 passage(s)."
    ]


def test_progress_is_reported(encoder):
    seen = []
    HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] > 0


def test_history_aware_stands_in_a_retrieval_chain(retriever):
    answer = RunnableLambda(lambda inputs: f"From {inputs['context'][0].id}")
    chain = create_retrieval_chain(retriever.history_aware(), answer)
    messages = [HumanMessage(HISTORY[0][0]), AIMessage(HISTORY[0][1])]
    assert chain.invoke({"input": "when was it published?", "chat_history": messages})["answer"] == "From sparsemax"
    assert chain.invoke({"input": "apples"})["answer"] == "From apples"


async def test_history_aware_in_batch_async_and_with_callbacks(retriever):
    class Seen(BaseCallbackHandler):
        def __init__(self):
            self.queries, self.found = [], []

        def on_retriever_start(self, serialized, query, **kwargs):
            self.queries.append(query)

        def on_retriever_end(self, documents, **kwargs):
            self.found.append(ids(documents)[0])

    seen, runnable = Seen(), retriever.history_aware()
    inputs = {"input": "when was it published?", "chat_history": HISTORY}
    assert ids(await runnable.ainvoke(inputs, {"callbacks": [seen]}))[0] == "sparsemax"
    assert seen.queries == ["when was it published?"]
    assert seen.found == ["sparsemax"]
    assert [ids(found)[0] for found in runnable.batch([inputs, {"input": "apples"}])] == ["sparsemax", "apples"]


def test_a_history_that_ends_with_the_question_itself_does_not_count_it(retriever, encoder):
    messages = [HumanMessage(HISTORY[0][0]), AIMessage(HISTORY[0][1])]
    question = {"input": "who published?", "chat_history": messages}
    repeated = {"input": "who published?", "chat_history": [*messages, HumanMessage("who published?")]}
    assert whole(retriever.history_aware().invoke(repeated)) == whole(retriever.history_aware().invoke(question))


def as_dicts(question, answer):
    parts = [{"type": "text", "text": answer}]
    return [{"role": "user", "content": question}, {"role": "assistant", "content": parts}]


HISTORIES = {
    "objects": lambda question, answer: [HumanMessage(question), AIMessage(answer)],
    "dicts": as_dicts,
    "dicts of a thread": lambda q, a: [{"type": "human", "content": q, "id": "1"}, {"type": "ai", "content": a, "id": "2"}],
    "tuples": lambda question, answer: [("human", question), ("ai", answer)],
    "lists": lambda question, answer: [["user", question], ["assistant", answer]],
    "pairs": lambda question, answer: [(question, answer)],
    "all sorts": lambda question, answer: [
        {"role": "developer", "content": "Be short."},
        {"role": "user", "content": question},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "tool", "content": "apples", "tool_call_id": "1"},
        ("assistant", answer),
    ],
}


@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
@pytest.mark.parametrize("asynchronous", [True, False])
async def test_a_chat_history_in_any_form(retriever, history, asynchronous):
    runnable, question = retriever.history_aware(), "when was it published?"
    inputs = {"input": question, "chat_history": history(*HISTORY[0])}
    found = await runnable.ainvoke(inputs) if asynchronous else runnable.invoke(inputs)
    assert [(d.id, d.metadata["score"]) for d in found] == [
        (d.id, d.metadata["score"]) for d in retriever.invoke(question, history=[HISTORY[0]])
    ]
    assert ids(found)[0] == "sparsemax"


async def test_a_string_is_an_input_without_a_history(retriever):
    runnable = retriever.history_aware()
    expected = whole(retriever.invoke("apples"))
    assert whole(runnable.invoke("apples")) == whole(await runnable.ainvoke({"input": "apples"})) == expected


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"role": "wizard", "content": "x"}, "wizard.*a message has a role"),
        ({"role": "user"}, "messages, not {'role': 'user'}"),
        ({"content": "x"}, "messages, not {'content': 'x'}"),
        (("user", "x", "y"), "messages, not"),
        (("user", 3), "a message has a role"),
        ("Who?", "messages, not 'Who"),
    ],
)
def test_a_chat_history_that_is_none(retriever, entry, message):
    with pytest.raises(InputError, match=message):
        retriever.history_aware().invoke({"input": "Who?", "chat_history": [entry]})


@pytest.mark.parametrize("inputs", [{}, {"question": "x"}, 3])
def test_history_aware_says_what_it_takes(retriever, inputs):
    with pytest.raises(InputError, match='"input"'):
        retriever.history_aware().invoke(inputs)


@pytest.mark.parametrize("query", ["", " \n\t", None, 3])
def test_a_question_that_is_none(retriever, query):
    with pytest.raises(InputError, match="question"):
        retriever.invoke(query)


@pytest.mark.parametrize("query", ["apple " * 20_000, "🍎", "苹果在哪里", "أين التفاح", "\ud800 apples", "\x00 apples"])
def test_unusual_questions_are_answered(retriever, query):
    assert len(retriever.invoke(query)) == 2


@pytest.mark.parametrize(
    "settings",
    [
        {"filter": {"year": {"$regex": "2"}}},
        {"filter": ["year"]},
        {"score_threshold": math.nan},
        {"score_threshold": "high"},
        {"k": 0},
        {"k": -3},
        {"k": "many"},
        {"beta": -1},
        {"beta": math.nan},
        {"passage_weight": -1},
        {"history_weight": -1},
        {"history_beta": math.nan},
        {"betta": 3},
    ],
)
def test_bad_settings_are_errors_of_one_line_before_anything_is_encoded(encoder, settings):
    with pytest.raises(InputError, match=next(iter(settings))) as caught:
        HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder, **settings)
    assert "\n" not in str(caught.value)
    assert encoder.passages == []


@pytest.mark.parametrize("value", [True, None, {"candidates": 500}])
def test_the_approximate_search_was_removed(encoder, tmp_path, value):
    path = tmp_path / "index"
    HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder, path=path)
    encoder.passages.clear()
    for make in (
        lambda: HopfieldRetriever.from_documents(DOCUMENTS, encoder=encoder, approximate=value),
        lambda: HopfieldRetriever.from_texts(["a text"], encoder=encoder, approximate=value),
        lambda: HopfieldRetriever.from_pretrained(path, encoder=encoder, approximate=value),
        lambda: HopfieldRetriever.from_vectorstore(in_memory(), approximate=value),
        lambda: HopfieldRetriever.from_engine("postgresql://db.invalid/docs?collection=m", encoder=encoder, approximate=value),
    ):
        with pytest.raises(InputError, match=r"'approximate' was removed.*the search is exact.*from_engine"):
            make()
    assert encoder.passages == []


def test_an_encoder_other_than_the_memorys_is_an_error(retriever):
    other = HopfieldRetriever(corpus=retriever.corpus, encoder=DeterministicFakeEmbedding(size=12))
    with pytest.raises(RetrievalError, match="length 4096"):
        other.invoke("apples")


def test_it_is_a_langchain_retriever_that_is_not_serialised(retriever):
    assert isinstance(retriever, BaseRetriever)
    assert not retriever.is_lc_serializable()
    assert retriever._get_ls_params()["ls_retriever_name"] == "hopfield"
    assert "corpus" not in retriever.model_dump()


def test_a_setting_can_be_made_configurable(retriever):
    runnable = retriever.configurable_fields(k=ConfigurableField(id="k"))
    assert ids(runnable.invoke("apples", {"configurable": {"k": 1}})) == ["apples"]
    assert len(runnable.invoke("apples")) == 2


async def test_many_at_once_do_not_mix(retriever):
    calls = [retriever.ainvoke("when was it published?", k=1, history=HISTORY), retriever.ainvoke("apples", k=1)] * 20
    assert [ids(found)[0] for found in await asyncio.gather(*calls)] == ["sparsemax", "apples"] * 20


@pytest.mark.parametrize("make", [lambda: ["a text"], lambda: iter(["a text"]), lambda: "a text"])
def test_what_is_no_document_is_told(encoder, tmp_path, make):
    for path in (None, tmp_path / "index"):
        with pytest.raises(InputError, match="give plain texts to from_texts"):
            HopfieldRetriever.from_documents(make(), encoder=encoder, path=path)


def test_more_that_cannot_be_used_is_one_line(retriever, encoder):
    with pytest.raises(InputError, match="a list of texts"):
        HopfieldRetriever.from_texts("one text", encoder=encoder)
    with pytest.raises(InputError, match="k must be"):
        retriever.invoke("apples", k=0)
    with pytest.raises(InputError, match="not NoneType"):
        HopfieldRetriever.from_documents(None, encoder=encoder)
    with pytest.raises(InputError, match="one string"):
        retriever.search_batch("who?")
    with pytest.raises(InputError, match="history must be"):
        retriever.invoke("who?", history=5)


_ENCODER = SentenceTransformerEncoder()
_CORPUS: list[MemoryCorpus] = []


@pytest.mark.slow
class TestHopfieldRetriever(RetrieversIntegrationTests):
    """LangChain's standard suite, with the real encoder."""

    @property
    def retriever_constructor(self):
        return HopfieldRetriever

    @property
    def retriever_constructor_params(self):
        if not _CORPUS:
            _CORPUS.append(MemoryCorpus(build_memory(facts(), _ENCODER)))
        return {"corpus": _CORPUS[0], "encoder": _ENCODER}

    @property
    def retriever_query_example(self):
        return "Who described the Hopfield network?"
