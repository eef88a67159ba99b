import io
import json

import pytest
from langchain_core.documents import Document
from rich.console import Console

from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.evaluation.retrieval.compare import default_methods, evaluate_retrieval, evaluate_sources
from langgraph_convcoa.retrieval.query.model import RetrieverModel
from langgraph_convcoa.retrieval.retriever import HopfieldRetriever
from tests.retrieval.conftest import BagOfWords

CORPUS = (
    Document("Sparsemax was proposed by Martins in 2016.", id="sparsemax"),
    Document("Dense passage retrieval was proposed by Karpukhin in 2020.", id="dpr"),
    Document("Apples grow on trees in autumn.", id="apples"),
)
ASKED = Query("1", "When was sparsemax proposed?", gold=("sparsemax",))
FOLLOW_UP = Query(
    "2",
    "When was it proposed?",
    (("Who wrote about sparsemax?", "Martins"),),
    ("sparsemax",),
    rewrite="When was sparsemax proposed?",
)
LOST = Query("3", "What is lost?", gold=("not in the pool",))


def evaluate(queries, **options):
    return evaluate_retrieval(Dataset("made", tuple(queries), CORPUS), encoder=BagOfWords(), **options)


def test_every_method_is_measured_and_rows_without_gold_are_counted():
    report = evaluate([ASKED, FOLLOW_UP, LOST])
    assert list(report.methods) == list(default_methods(None))
    assert (report.queries, report.left_out, report.documents) == (2, 1, 3)
    for method in ("two-turns", "history", "dense", "hybrid"):
        assert report.methods[method].metrics["MRR"] == 1
    assert report.methods["rewrite"].queries == 1
    assert report.methods["rewrite"].metrics["Recall@1"] == 1


def test_the_bare_question_misses_what_the_history_says():
    # "proposed" alone fits the shorter text; sparsemax is named in the history only.
    report = evaluate(
        [FOLLOW_UP], methods=("question", "bm25", "hybrid"), distractors=[Document("It was proposed late.", id="short")]
    )
    assert report.methods["question"].metrics["Recall@1"] == 0
    assert report.methods["bm25"].metrics["Recall@1"] == 0
    assert report.methods["hybrid"].metrics["Recall@1"] == 1


def test_a_wrong_setting_is_an_error():
    with pytest.raises(InputError, match="betta"):
        evaluate([FOLLOW_UP], methods=["hybrid"], settings={"betta": 1.0})


def test_distractors_join_the_pool_unless_they_are_there_already():
    more = [Document("New text.", id="new"), Document("Other", id="dpr"), Document(CORPUS[0].page_content, id="copy")]
    assert evaluate([ASKED], methods=["bm25"], distractors=more).documents == 4


def test_a_long_document_ranks_once_by_its_best_part():
    long = Document("\n\n".join(f"Part {n} of it has item{n} and other plain words in it." for n in range(40)), id="long")
    query = Query("1", "item33", gold=("long",))
    for method in ("untrained-dense", "hybrid"):
        report = evaluate_retrieval(Dataset("made", (query,), (*CORPUS, long)), methods=[method], encoder=BagOfWords())
        assert report.methods[method].metrics["MRR"] == 1
        assert report.documents == 4


def test_the_lexical_channel_is_what_hybrid_has_over_dense():
    # The bag is too small to tell words apart, so that only BM25 knows what a text is about.
    asked = Dataset("made", (Query("1", "Who wrote of dense retrieval?", gold=("dpr",)),), CORPUS)
    for method, expected in (("dense", 0.5), ("hybrid", 1.0), ("untrained", 1.0)):
        report = evaluate_retrieval(asked, methods=[method], encoder=BagOfWords(dimension=1))
        assert report.methods[method].metrics["MRR"] == expected
    report = evaluate_retrieval(asked, methods=["hybrid"], encoder=BagOfWords(dimension=1), settings={"lexical_weight": 0.0})
    assert report.methods["hybrid"].metrics["MRR"] == 0.5


def test_a_pool_without_any_gold():
    with pytest.raises(InputError, match="gold passage"):
        evaluate([LOST])


# A model that leaves the history out, so that what it does is known.
FORGETFUL = RetrieverModel("bag", settings={"history_weight": 0.0})
SHORT = Document("It was proposed late.", id="short")


def test_before_and_after_training():
    queries = [Query(str(n), FOLLOW_UP.question, FOLLOW_UP.history, FOLLOW_UP.gold, conversation=f"c{n}") for n in range(8)]
    report = evaluate(queries, model=FORGETFUL, distractors=[SHORT])
    # No question has a rewrite.
    assert list(report.methods) == [name for name in default_methods(FORGETFUL) if name != "rewrite"]
    assert report.baseline == "untrained"
    trained, untrained = report.methods["trained"], report.methods["untrained"]
    assert (trained.metrics["Recall@1"], untrained.metrics["Recall@1"]) == (0, 1)
    # All eight conversations lose: two of the 256 ways to set the signs are as far from 0.
    assert trained.p_values["Recall@1"] == pytest.approx(2 / 256)
    assert untrained.p_values == {}
    assert trained.intervals["Recall@1"] == (0, 0)


def test_a_model_in_a_folder(tmp_path):
    FORGETFUL.save(tmp_path / "model")
    report = evaluate([FOLLOW_UP], model=tmp_path / "model", methods=["trained-dense", "untrained-dense"], distractors=[SHORT])
    assert report.methods["trained-dense"].metrics["Recall@1"] == 0
    assert report.methods["untrained-dense"].metrics["Recall@1"] == 1


def test_a_model_for_another_encoder_is_told_before_anything_is_encoded():
    encoder = BagOfWords()
    with pytest.raises(RetrievalError, match="trained for the encoder 'another', not 'bag'"):
        evaluate_retrieval(Dataset("made", (ASKED,), CORPUS), encoder=encoder, model=RetrieverModel("another"))
    assert encoder.passages == []


def test_the_test_is_on_the_queries_that_both_were_asked():
    report = evaluate([ASKED, FOLLOW_UP], methods=["rewrite", "question"], baseline="rewrite")
    assert (report.methods["rewrite"].queries, report.methods["question"].queries) == (1, 2)
    assert report.methods["question"].p_values["MRR"] == 1
    with pytest.raises(InputError, match="baseline 'bm25' is not measured; name one of question"):
        evaluate([ASKED], methods=["question"], baseline="bm25")


def test_several_sources_count_alike():
    easy, hard = Dataset("easy", (ASKED, FOLLOW_UP), CORPUS), Dataset("hard", (FOLLOW_UP,), (*CORPUS, SHORT))
    report = evaluate_sources([easy, hard], parts=["dev", ""], methods=["question", "dense"], encoder=BagOfWords())
    means = [source.methods["question"].metrics["Recall@1"] for source in report.sources]
    assert means[1] == 0
    assert report.macro["question"].metrics["Recall@1"] == pytest.approx(sum(means) / 2)
    assert report.macro["question"].queries == 3
    assert json.loads(json.dumps(report.to_dict()))["sources"][0]["part"] == "dev"
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(report)
    text = console.export_text()
    assert "easy (dev): 2 queries" in text
    assert "mean over 2 sources" in text
    with pytest.raises(InputError, match="Two data sets are named easy"):
        evaluate_sources([easy, easy], methods=["bm25"])
    with pytest.raises(InputError, match="no data to measure"):
        evaluate_sources([])


def test_an_index_is_searched_in_place_of_the_passages(tmp_path):
    HopfieldRetriever.from_documents([*CORPUS, SHORT], encoder=BagOfWords(), path=tmp_path / "index")
    questions = Dataset("made", (ASKED, FOLLOW_UP, LOST), ())
    report = evaluate_retrieval(questions, encoder=BagOfWords(), index=tmp_path / "index")
    assert (list(report.methods), report.documents, report.left_out) == (["dense", "hybrid"], 4, 1)
    in_memory = evaluate([ASKED, FOLLOW_UP, LOST], methods=["dense", "hybrid"], distractors=[SHORT])
    for method in ("dense", "hybrid"):
        assert report.methods[method].metrics == in_memory.methods[method].metrics
    with pytest.raises(InputError, match="over an index 'bm25'; known: hybrid"):
        evaluate_retrieval(questions, encoder=BagOfWords(), index=tmp_path / "index", methods=["bm25"])
    with pytest.raises(InputError, match="An index is searched as it is"):
        evaluate_retrieval(questions, encoder=BagOfWords(), index=tmp_path / "index", distractors=[SHORT])


def test_each_question_is_encoded_once():
    encoder = BagOfWords()
    evaluate_retrieval(Dataset("made", (ASKED, FOLLOW_UP), CORPUS), encoder=encoder, model=FORGETFUL)
    assert len(encoder.queries) == len(set(encoder.queries))


def test_a_question_that_needs_two_passages_is_found_where_both_are_among_the_first():
    both = Query("both", "When was sparsemax proposed?", gold=("sparsemax", "apples"))
    distractors = [Document(f"Sparsemax was proposed {n} times.", id=f"d{n}") for n in range(4)]
    report = evaluate([both, ASKED], methods=["hybrid"], distractors=distractors)
    figures = report.methods["hybrid"].metrics
    assert (figures["Recall@5"], figures["All@5"], figures["All@10"]) == (0.75, 0.5, 1.0)
    columns = report.tables()[0].columns
    assert "All@5" in columns
    # At 10 both are found: the column would say what Recall@10 says.
    assert "All@10" not in columns
    assert "All@5" not in evaluate([ASKED], methods=["hybrid"]).tables()[0].columns
