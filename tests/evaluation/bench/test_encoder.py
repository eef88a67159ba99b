import json

import numpy as np
import pytest
from langchain_core.documents import Document
from typer.testing import CliRunner

from langgraph_convcoa.cli.app import app
from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.evaluation.bench.encoder import bench_encoder
from langgraph_convcoa.retrieval.encoders.sentence_transformer import SentenceTransformerEncoder
from tests.retrieval.tiny_bert import save_tiny_bert

CORPUS = ("what is a network", "the river of the book", "hopfield stores a memory", "who was in it")
QUERIES = (
    Query("1", "what is a network", gold=("p0",)),
    Query("2", "in it", history=(("what is the memory", "a book"), ("who was", "")), gold=("p3",)),
    Query("3", "who", gold=("elsewhere",)),
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return str(save_tiny_bert(tmp_path_factory.mktemp("tiny") / "bert", width=64))


@pytest.fixture
def dataset():
    return Dataset("small", QUERIES, tuple(Document(text, id=f"p{n}") for n, text in enumerate(CORPUS)))


def test_types_and_attentions_with_their_retrieval(checkpoint, dataset):
    report = bench_encoder(checkpoint, dtypes=("bfloat16",), dataset=dataset, texts=4, runs=2)
    assert [(row.attention, row.dtype) for row in report.rows] == [
        ("softmax", "float32"),
        ("softmax", "bfloat16"),
        ("softmax1", "float32"),
        ("softmax1", "bfloat16"),
    ]
    assert (report.dataset, report.queries, report.texts) == ("small", 2, 4)
    for row in report.rows:
        assert row.texts_per_second > 0
        if row.dtype == "float32":
            assert row.least_cosine == pytest.approx(1)
            assert row.to_float32 == 1
        else:
            assert 0.99 < row.least_cosine <= row.cosine < 0.999999
    encoder = SentenceTransformerEncoder(checkpoint, dtype="float32")
    similarity = encoder.encode_queries(["what is a network", "who was in it"]) @ encoder.encode_passages(CORPUS).T
    ranks = [1 + int((row > row[gold]).sum()) for row, gold in zip(similarity, (0, 3), strict=True)]
    assert ranks == [1, 1], "the second question stands behind the turn before it only"
    assert report.rows[0].mrr == report.rows[0].recall_10 == 1
    assert [(row.attention, row.steps) for row in report.outliers] == [("softmax", 0), ("softmax1", 0)]
    assert report.outliers[0].outliers != report.outliers[1].outliers


def test_a_worse_ranking_has_a_lower_mrr(checkpoint, dataset):
    other = Dataset("small", (Query("1", "what is a network", gold=("p3",)),), dataset.corpus)
    row = bench_encoder(checkpoint, dtypes=("float32",), attentions=("softmax",), dataset=other, texts=2, runs=1).rows[0]
    assert row.mrr in {1 / 2, 1 / 3, 1 / 4}


def test_without_data_the_demonstration_is_timed(checkpoint):
    report = bench_encoder(checkpoint, dtypes=("float32",), attentions=("softmax",), texts=40, runs=1)
    assert (report.texts, report.dataset, report.rows[0].mrr) == (40, None, None)


def test_eight_bits_take_less_memory(checkpoint):
    pytest.importorskip("torchao")
    rows = bench_encoder(checkpoint, dtypes=("torchao-int8",), attentions=("softmax",), texts=2, runs=1).rows
    assert rows[1].weights_mb < 0.7 * rows[0].weights_mb


def test_a_training_is_measured_with_each_attention(checkpoint, dataset):
    report = bench_encoder(checkpoint, dtypes=("float32",), dataset=dataset, texts=4, runs=1, train=dataset, steps=2)
    states = [("softmax", 0), ("softmax1", 0), ("softmax", 2), ("softmax1", 2)]
    assert [(row.attention, row.steps) for row in report.outliers] == states
    assert [(row.attention, row.steps) for row in report.rows] == states
    assert len({row.outliers for row in report.outliers}) == 4


def test_without_data_nothing_is_trained(checkpoint):
    with pytest.raises(InputError, match="--data"):
        bench_encoder(checkpoint, steps=3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dtypes": ("auto",)}, "no type auto; choose from float32"),
        ({"dtypes": ()}, "none named"),
        ({"attentions": ("relu",)}, "no attention relu"),
        ({"runs": 0}, "at least 1"),
        ({"queries": 0}, "at least 1"),
    ],
)
def test_settings_that_cannot_be_measured(settings, message):
    with pytest.raises(InputError, match=message):
        bench_encoder("no/model", **settings)


def test_data_without_a_gold_passage(checkpoint, dataset):
    with pytest.raises(InputError, match="gold passage"):
        bench_encoder(checkpoint, dataset=Dataset("small", QUERIES[2:], dataset.corpus))


def test_the_command_prints_a_table_or_json(checkpoint, tmp_path):
    (tmp_path / "queries.jsonl").write_text(json.dumps({"id": "1", "question": "what is a network", "gold": ["p0"]}))
    (tmp_path / "corpus.jsonl").write_text(
        "\n".join(json.dumps({"id": f"p{n}", "title": "", "text": text}) for n, text in enumerate(CORPUS))
    )
    command = ["bench", "encoder", "--model", checkpoint, "--dtypes", "float32,bfloat16", "--attention", "softmax1"]
    command += ["--texts", "4", "--runs", "1", "--data", str(tmp_path)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "bfloat16" in result.stdout
    assert "kurtosis" in result.stdout
    report = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert [row["dtype"] for row in report["rows"]] == ["float32", "bfloat16"]
    assert np.isfinite(report["outliers"][0]["outliers"]["attention_kurtosis"])


def test_the_command_says_what_is_wrong_in_one_line():
    result = CliRunner().invoke(app, ["bench", "encoder", "--dtypes", "float8"])
    assert result.exit_code == 2
    assert "float8" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("split", [(), ("--split", "train")])
def test_what_is_trained_on_is_not_measured_on(split: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, ["bench", "encoder", "--data", "nowhere", "--train-steps", "1", *split])
    assert result.exit_code == 2
    assert "--split" in result.stderr
