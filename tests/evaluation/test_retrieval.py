import io
import json

import pytest
from langchain_core.documents import Document
from rich.console import Console

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.datasets import Dataset, Query
from langgraph_convcoa.evaluation.retrieval import METHODS, evaluate_retrieval
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
    assert list(report.methods) == list(METHODS)
    assert (report.queries, report.left_out, report.documents) == (2, 1, 3)
    for method in ("two-turns", "history", "dense", "hybrid"):
        assert report.methods[method].metrics["MRR"] == 1
    assert report.methods["rewrite"].queries == 1
    assert report.methods["rewrite"].metrics["Recall@1"] == 1


def test_the_bare_question_misses_what_the_history_says():
    # "proposed" alone fits the shorter text; sparsemax is named in the history only.
    report = evaluate(
        [FOLLOW_UP], methods=("question", "bm25", "hopfield"), distractors=[Document("It was proposed late.", id="short")]
    )
    assert report.methods["question"].metrics["Recall@1"] == 0
    assert report.methods["bm25"].metrics["Recall@1"] == 0
    assert report.methods["hopfield"].metrics["Recall@1"] == 1


def test_distractors_join_the_pool_unless_they_are_there_already():
    more = [Document("New text.", id="new"), Document("Other", id="dpr"), Document(CORPUS[0].page_content, id="copy")]
    assert evaluate([ASKED], methods=["bm25"], distractors=more).documents == 4


def test_recall_counts_gold_that_is_not_in_the_pool():
    query = Query("1", "When was sparsemax proposed?", gold=("sparsemax", "elsewhere"))
    assert evaluate([query], methods=["question"]).methods["question"].metrics["Recall@10"] == 0.5


def test_a_long_document_ranks_once_by_its_best_part():
    long = Document("\n\n".join(f"Part {n} of it has item{n} and other plain words in it." for n in range(40)), id="long")
    query = Query("1", "item33", gold=("long",))
    for method in ("question-parts", "hopfield"):
        report = evaluate_retrieval(Dataset("made", (query,), (*CORPUS, long)), methods=[method], encoder=BagOfWords())
        assert report.methods[method].metrics["MRR"] == 1
        assert report.documents == 4


def test_the_lexical_channel_is_what_hybrid_has_over_dense():
    # The bag is too small to tell words apart, so that only BM25 knows what a text is about.
    asked = Dataset("made", (Query("1", "Who wrote of dense retrieval?", gold=("dpr",)),), CORPUS)
    for method, expected in (("dense", 0.5), ("hybrid", 1.0), ("hopfield", 1.0)):
        report = evaluate_retrieval(asked, methods=[method], encoder=BagOfWords(dimension=1))
        assert report.methods[method].metrics["MRR"] == expected
    report = evaluate_retrieval(asked, methods=["hybrid"], encoder=BagOfWords(dimension=1), settings={"lexical_weight": 0.0})
    assert report.methods["hybrid"].metrics["MRR"] == 0.5


def test_settings_reach_the_retriever():
    assert (
        evaluate([FOLLOW_UP], methods=["hopfield"], settings={"history_weight": 0.0, "beta": 1.0}).methods["hopfield"].queries
        == 1
    )
    with pytest.raises(InputError, match="betta"):
        evaluate([FOLLOW_UP], methods=["hopfield"], settings={"betta": 1.0})


def test_the_report_is_json_and_a_table():
    report = evaluate([ASKED, LOST], methods=["bm25", "rewrite"])
    row = json.loads(json.dumps(report.to_dict()))["methods"]["bm25"]
    assert set(row) == {"queries", "seconds", "MRR", "Recall@1", "Recall@5", "Recall@10", "Recall@100", "nDCG@10"}
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(report)
    text = console.export_text()
    assert "1 left out" in text
    assert "bm25" in text


@pytest.mark.parametrize("methods", [["bm26"], []])
def test_unknown_methods(methods):
    with pytest.raises(InputError, match="known: bm25"):
        evaluate([ASKED], methods=methods)


def test_a_pool_without_any_gold():
    with pytest.raises(InputError, match="gold passage"):
        evaluate([LOST])
