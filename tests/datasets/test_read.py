import csv
import gzip
import json
from pathlib import Path

import pytest

from langgraph_convcoa.datasets.queries import Query
from langgraph_convcoa.datasets.read import load_dataset, load_distractors
from langgraph_convcoa.datasets.rows import table_rows
from langgraph_convcoa.errors import InputError
from tests import SHARED
from tests.data import write_dataset

QUERY = {"id": "q", "question": "Who?", "history": [["a", "b"]], "gold": ["p"], "rewrite": None, "answer": "x"}
QUERY |= {"split": "dev", "domain": "d"}
PASSAGE = {"id": "p", "title": "T", "text": "text"}


def write(folder, queries=(QUERY,), corpus=(PASSAGE,), gz=False):
    return write_dataset(folder, queries, corpus, ".jsonl.gz" if gz else ".jsonl")


@pytest.mark.parametrize("gz", [False, True])
def test_rows_become_queries_and_documents(tmp_path, gz):
    dataset = load_dataset(write(tmp_path, gz=gz))
    (query,), (passage,) = dataset.queries, dataset.corpus
    assert dataset.name == tmp_path.name
    assert (query.id, query.question, query.history, query.gold) == ("q", "Who?", (("a", "b"),), ("p",))
    assert (query.rewrite, query.answer, query.split, query.extra) == ("", "x", "dev", {"domain": "d"})
    assert (passage.id, passage.page_content, passage.metadata) == ("p", "text", {"title": "T"})


def test_splits(tmp_path):
    write(tmp_path, [QUERY, QUERY | {"id": "r", "split": "train"}])
    assert [query.id for query in load_dataset(tmp_path, split="train").queries] == ["r"]
    with pytest.raises(InputError, match=r"no queries of the split 'test'; its splits: dev, train"):
        load_dataset(tmp_path, split="test")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"id": "q", ', "not JSON"),
        ("[1]", "JSON object"),
        (QUERY | {"question": " "}, "`question`"),
        ({"id": "q"}, "`question`"),
        (QUERY | {"id": 3}, "`id`"),
        (QUERY | {"history": [["a"]]}, "`history`"),
        (QUERY | {"history": "a"}, "`history`"),
        (QUERY | {"gold": "p"}, "`gold`"),
        (QUERY | {"rewrite": 3}, "`rewrite`"),
    ],
)
def test_a_bad_query_names_its_file_and_line(tmp_path, row, message):
    write(tmp_path, [QUERY, "", row])
    with pytest.raises(InputError, match=message) as caught:
        load_dataset(tmp_path)
    assert f"{tmp_path / 'queries.jsonl'}, line 3" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("row", "message"), [({"id": "r"}, "`text`"), ({"text": "t"}, "`id`"), (PASSAGE, "'p' twice")])
def test_a_bad_corpus(tmp_path, row, message):
    with pytest.raises(InputError, match=r"corpus\.jsonl, line 2: .*" + message):
        load_dataset(write(tmp_path, corpus=[PASSAGE, row]))


def test_two_queries_of_one_id(tmp_path):
    with pytest.raises(InputError, match=r"queries\.jsonl, line 2: the id 'q' is there already, in .*line 1"):
        load_dataset(write(tmp_path, [QUERY, QUERY]))


def test_a_file_of_mixed_encodings_names_its_first_line_that_is_not_utf_8(tmp_path):
    write(tmp_path)
    lines = [json.dumps({"id": f"p{n}", "text": "Café"}, ensure_ascii=False) for n in range(2)]
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + lines[0].encode() + b"\n" + lines[1].encode("latin-1"))
    with pytest.raises(InputError, match=r"corpus\.jsonl, line 2: not UTF-8; save the whole file as UTF-8"):
        load_dataset(tmp_path)
    path.write_bytes(b"\xef\xbb\xbf" + lines[0].encode())
    assert load_dataset(tmp_path).corpus[0].page_content == "Café"


def test_a_large_corpus_is_not_kept(tmp_path):
    write(tmp_path, corpus=[*({"id": f"x{n}", "text": str(n)} for n in range(100)), PASSAGE])
    assert [passage.id for passage in load_dataset(tmp_path, max_passages=3).corpus] == ["x0", "x1", "p"]


def test_what_is_missing_or_broken_is_named(tmp_path):
    with pytest.raises(InputError, match=r"none does not exist; name a folder of queries\.jsonl"):
        load_dataset(tmp_path / "none")
    with pytest.raises(InputError, match="no known format"):
        load_dataset(tmp_path)
    (tmp_path / "queries.jsonl").touch()
    with pytest.raises(InputError, match=r"no corpus\.jsonl"):
        load_dataset(tmp_path)
    (tmp_path / "queries.jsonl").unlink()
    write(tmp_path, gz=True)
    path = tmp_path / "corpus.jsonl.gz"
    for data in (b"plain", path.read_bytes()[:-9], path.read_bytes()[:20] + b"\xff" * 8):
        path.write_bytes(data)
        with pytest.raises(InputError, match="cannot be read"):
            load_dataset(tmp_path)
    path.write_bytes(gzip.compress(b"\xff\xfe"))
    with pytest.raises(InputError, match="line 1: not UTF-8"):
        load_dataset(tmp_path)


def test_distractors_are_the_first_rows_of_a_file(tmp_path):
    write(tmp_path, corpus=[PASSAGE | {"id": f"p{n}"} for n in range(5)])
    path = tmp_path / "corpus.jsonl"
    assert [document.id for document in load_distractors(f"{path}:2")] == ["p0", "p1"]
    assert len(load_distractors(f"{path}:99")) == 5


@pytest.mark.parametrize("end", [":0", ":-1", ":x", ":"])
def test_bad_distractors(tmp_path, end):
    write(tmp_path)
    with pytest.raises(InputError, match="FILE:N"):
        load_distractors(f"{tmp_path / 'corpus.jsonl'}{end}")


def test_distractors_of_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        load_distractors(f"{tmp_path / 'none'}:3")


@pytest.mark.data
def test_the_shared_data_loads():
    if not (SHARED / "data").is_dir():
        pytest.skip("the shared evaluation data is not here")
    dataset = load_dataset(SHARED / "data" / "mtrag", split="dev")
    assert (len(dataset.queries), len(dataset.corpus)) == (244, 1504)


def test_a_long_field_of_a_tsv_is_read_and_the_limit_of_csv_stays(tmp_path: Path) -> None:
    usual = csv.field_size_limit()
    path = tmp_path / "passages.tsv"
    path.write_text("id\ttext\tother\n1\t" + "x" * 200_000 + "\ty\n", encoding="utf-8")
    rows = table_rows(path)
    row = next(rows)
    assert row.where.endswith("line 2")
    assert len(row["text"]) == 200_000
    assert csv.field_size_limit() == usual


def test_one_answer_is_the_only_reference():
    assert Query("1", "?", answer="x").references == ("x",)
    assert Query("1", "?", answer=" ").references == Query("1", "?").references == ()
    assert Query("1", "?", answer="x", references=("x", "y")).references == ("x", "y")


def test_several_right_answers(tmp_path):
    rows = [
        {"id": "1", "question": "Who?", "answers": ["Ada", "Ada Lovelace"]},
        {"id": "2", "question": "Who?", "answer": "Lovelace", "answers": ["Ada", "Lovelace"]},
        {"id": "3", "question": "Who?", "answers": []},
        {"id": "4", "question": "Who?", "answer": "Ada"},
    ]
    first, second, third, fourth = load_dataset(write(tmp_path, rows)).queries
    assert (first.answer, first.references) == ("Ada", ("Ada", "Ada Lovelace"))
    assert (second.answer, second.references) == ("Lovelace", ("Lovelace", "Ada"))
    assert (third.answer, third.references, fourth.references) == ("", (), ("Ada",))
    assert first.extra == {}
    with pytest.raises(InputError, match=r"queries\.jsonl, line 1: `answers` must be a string or a list of strings"):
        load_dataset(write(tmp_path, [{"id": "1", "question": "Who?", "answers": [3]}]))
