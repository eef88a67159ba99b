"""The published formats, on small files of their shapes."""

import csv

import pytest

from langgraph_convcoa.datasets.read import load_dataset
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.training.data import load_training_data
from tests.data import write_rows


def turn(number, question, context=(), **more):
    return {"Conversation_no": 7, "Turn_no": number, "Context": list(context), "Question": question} | more


FIRST = ["Who was Ada?", "A mathematician."]


@pytest.fixture
def qrecc(tmp_path):
    rows = [
        turn(1, "Who was Ada?", Rewrite="Who was Ada Lovelace?", Answer="Of London.", Answer_URL="http://a.org/x"),
        turn(2, "When?", FIRST, Rewrite="When was Ada Lovelace born?", Answer="In 1815.", Answer_URL="http://a.org/y"),
        turn(3, "Why?", FIRST, Rewrite="Why?", Answer="", Answer_URL=""),
    ]
    write_rows(tmp_path / "qrecc" / "qrecc_train.json", rows)
    passages = [
        {"id": "http://a.org/x_p0", "contents": "Menu and links."},
        {"id": "http://a.org/x_p1", "contents": "Ada was a mathematician of London."},
        {"id": "http://a.org/y_p3", "contents": "Born in 1815."},
        *({"id": f"http://b.org/z_p{n}", "contents": f"Nothing {n}."} for n in range(50)),
    ]
    write_rows(tmp_path / "qrecc" / "passages" / "part.jsonl", passages).rename(tmp_path / "qrecc" / "part.jsonl")
    return tmp_path / "qrecc"


def test_qrecc_finds_the_passages_of_the_answer_on_its_page(qrecc):
    dataset = load_dataset(qrecc)
    first, second, third = dataset.queries
    assert (first.gold, second.gold, third.gold) == (("http://a.org/x_p1",), ("http://a.org/y_p3",), ())
    assert second.history == (tuple(FIRST),)
    assert (second.rewrite, second.answer, second.split) == ("When was Ada Lovelace born?", "In 1815.", "train")
    assert first.conversation == second.conversation == "train-7"
    assert third.extra["answerable"] is False
    assert len(dataset.corpus) == 53


@pytest.mark.parametrize("answer", ["", "Yes", "Yes.", "No"])
def test_an_answer_without_words_of_its_own_makes_no_passage_of_qrecc_gold(tmp_path, answer):
    write_rows(tmp_path / "qrecc_train.json", [turn(1, "Is it old?", Rewrite="x", Answer=answer, Answer_URL="http://a.org/x")])
    pages = [{"id": f"http://a.org/x_p{n}", "contents": text} for n, text in enumerate(("Yes, we can.", "It has no end."))]
    write_rows(tmp_path / "part.jsonl", pages)
    (query,) = load_dataset(tmp_path).queries
    assert query.gold == ()


def test_a_large_collection_is_not_kept(qrecc):
    corpus = load_dataset(qrecc, max_passages=6).corpus
    assert {"http://a.org/x_p0", "http://a.org/x_p1", "http://a.org/y_p3"} <= {passage.id for passage in corpus}
    assert len(corpus) < 10


def test_questions_without_gold_are_left_out_of_training(qrecc):
    data = load_training_data([qrecc], dev_share=0.0)
    assert [example.question for example in data.examples] == ["Who was Ada?", "When?"]


def test_qrecc_of_scai(tmp_path):
    row = turn(2, "When?", FIRST, Truth_rewrite="When was Ada born?", Truth_answer="1815", Truth_passages=["p_p2", "p_p2"])
    write_rows(tmp_path / "s" / "scai-qrecc21-test-turns.json", [row])
    write_rows(tmp_path / "s" / "passages.jsonl.gz", [{"id": "p_p2", "contents": "Born in 1815."}])
    (query,) = load_dataset(tmp_path / "s").queries
    assert (query.gold, query.rewrite, query.answer, query.split) == (("p_p2",), "When was Ada born?", "1815", "test")


def test_topiocqa_carries_its_gold_passages(tmp_path):
    gold = {"id": "wiki:12", "title": "Ada Lovelace [SEP] Life", "text": "Born in 1815."}
    rows = [
        turn(2, "When?", FIRST, Answer="In 1815.", Topic="Ada Lovelace", Gold_passage=gold),
        turn(3, "What else?", FIRST, Answer="UNANSWERABLE", Topic="Ada Lovelace", Gold_passage={}),
    ]
    rows[0]["Additional_answers"] = [{"Answer": "1815", "Topic": "x"}, {"Answer": ""}]
    dataset = load_dataset(write_rows(tmp_path / "topiocqa_dev.json", rows))
    assert dataset.name == "topiocqa_dev"
    assert (dataset.queries[0].gold, dataset.queries[0].references) == (("wiki:12",), ("In 1815.", "1815"))
    assert dataset.queries[0].history == (tuple(FIRST),)
    assert [query.extra.get("answerable") for query in dataset.queries] == [None, False]
    assert dataset.corpus[0].metadata["title"] == "Ada Lovelace, Life"


def test_topiocqa_of_the_retriever_with_its_collection(tmp_path):
    row = {
        "conv_id": 3,
        "turn_id": 2,
        "question": "Who was Ada? [SEP] A mathematician. [SEP] When was she born?",
        "answers": ["1815", "in 1815"],
        "positive_ctxs": [{"passage_id": "9", "title": "Ada [SEP] Life", "text": "Born in\t1815."}],
    }
    write_rows(tmp_path / "t" / "dev.json", [row])
    with (tmp_path / "t" / "full_wiki_segments.tsv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, delimiter="\t")
        writer.writerows([["id", "text", "title"], [8, 'A "quoted"\nline.', "Other"], [9, "Born in\t1815.", "Ada [SEP] Life"]])
    dataset = load_dataset(tmp_path / "t")
    (query,) = dataset.queries
    assert (query.question, query.history, query.answer) == ("When was she born?", (tuple(FIRST),), "1815")
    assert (query.gold, query.conversation, query.references) == (("9",), "dev-3", ("1815", "in 1815"))
    assert {passage.id: passage.page_content for passage in dataset.corpus} == {
        "9": "Born in\t1815.",
        "8": 'A "quoted"\nline.',
    }


def quac(questions, **more):
    paragraph = {"id": "C_1", "context": "Ada was born in 1815. CANNOTANSWER", "qas": questions} | more
    return {"data": [{"title": "Ada", "section_title": "Life", "background": "", "paragraphs": [paragraph]}]}


def asked(number, text, *answers):
    answers = [{"text": answer, "answer_start": 0} for answer in answers]
    return {"id": f"C_1_q#{number}", "question": text, "answers": answers, "followup": "y", "yesno": "x"}


def test_quac(tmp_path):
    questions = [asked(0, "When?", "born in 1815", "1815", "CANNOTANSWER"), asked(1, "Where?", "CANNOTANSWER", "London")]
    questions.append(asked(2, "Who?", "Ada") | {"orig_answer": {"text": "Ada was", "answer_start": 0}})
    dataset = load_dataset(write_rows(tmp_path / "val_v0.2.json", quac(questions)))
    assert [query.gold for query in dataset.queries] == [("C_1",), (), ("C_1",)]
    assert [query.references for query in dataset.queries[:2]] == [("born in 1815", "1815"), ()]
    assert [query.extra.get("answerable") for query in dataset.queries] == [None, False, None]
    assert dataset.queries[2].history == (("When?", "born in 1815"), ("Where?", ""))
    assert (dataset.queries[2].answer, dataset.queries[2].split) == ("Ada was", "dev")
    (passage,) = dataset.corpus
    assert (passage.page_content, passage.metadata["title"]) == ("Ada was born in 1815.", "Ada, Life")


def test_coqa(tmp_path):
    story = {
        "id": "3zot",
        "source": "wikipedia",
        "story": "Ada was born in 1815.",
        "questions": [{"input_text": "Who was born?", "turn_id": 1}, {"input_text": "Where?", "turn_id": 2}],
        "answers": [
            {"input_text": "Ada", "span_text": "Ada", "span_start": 0, "span_end": 3, "turn_id": 1},
            {"input_text": "unknown", "span_text": "unknown", "span_start": -1, "span_end": -1, "turn_id": 2},
        ],
        "additional_answers": {"0": [{"input_text": "her", "turn_id": 1}], "1": [{"input_text": "Ada", "turn_id": 1}]},
    }
    for name in ("coqa-train-v1.0.json", "coqa-dev-v1.0.json"):
        identity = story["id"] + name[5]
        write_rows(tmp_path / "coqa" / name, {"version": "1.0", "data": [story | {"id": identity}]})
    dataset = load_dataset(tmp_path / "coqa", split="train")
    assert [(query.id, query.gold, query.history) for query in dataset.queries] == [
        ("3zott-1", ("3zott",), ()),
        ("3zott-2", (), (("Who was born?", "Ada"),)),
    ]
    assert [query.references for query in dataset.queries] == [("Ada", "her", "Ada"), ("unknown",)]
    with pytest.raises(InputError, match=r"bad\.json, item 1: `1` must be a list of objects"):
        load_dataset(write_rows(tmp_path / "bad.json", {"data": [story | {"additional_answers": {"1": "x"}}]}))
    assert len(load_training_data([tmp_path / "coqa"], part="dev").examples) == 1
    story["answers"].pop()
    with pytest.raises(InputError, match=r"bad\.json, item 1: 2 questions and 1 answers"):
        load_dataset(write_rows(tmp_path / "bad.json", {"data": [story]}))


def speaker(who, text):
    return {"speaker": who, "text": text, "metadata": {}}


def test_mtrag_generation_tasks(tmp_path):
    task = {
        "conversation_id": "2c",
        "task_id": "2c<::>2",
        "Collection": "mt-rag-clapnq",
        "input": [speaker("user", "Who was Ada?"), speaker("agent", "A mathematician."), speaker("user", "When?")],
        "targets": [speaker("agent", "In 1815."), speaker("agent", "1815")],
        "contexts": [{"document_id": "8-0-4", "source": "", "text": "Born in 1815.", "title": "Ada"}],
    }
    other = task | {"task_id": "2c<::>1", "input": task["input"][:1], "contexts": []}
    dataset = load_dataset(write_rows(tmp_path / "reference.jsonl", [task, other]))
    first, second = dataset.queries
    assert (first.history, first.gold) == ((tuple(FIRST),), ("8-0-4",))
    assert (first.answer, first.references) == ("In 1815.", ("In 1815.", "1815"))
    assert (first.conversation, second.history, second.extra["answerable"]) == ("2c", (), False)
    with pytest.raises(InputError, match=r"line 2: `input` must end with the user"):
        load_dataset(write_rows(tmp_path / "bad.jsonl", [task, task | {"input": task["input"][:2]}]))


@pytest.fixture
def retrieval_tasks(tmp_path):
    folder = tmp_path / "clapnq"
    write_rows(folder / "clapnq_lastturn.jsonl", [{"_id": "2c<::>2", "text": "|user|: When?"}])
    both = {"_id": "2c<::>2", "text": "|user|: Who was Ada?\n|user|: When?"}
    write_rows(folder / "clapnq_questions.jsonl", [both, {"_id": "2c<::>3", "text": "|user|: Not judged?"}])
    write_rows(folder / "clapnq_rewrite.jsonl", [{"_id": "2c<::>2", "text": "|user|: When was Ada born?"}])
    write_rows(folder / "clapnq.jsonl", [{"_id": "8-0-4", "title": "Ada", "text": "Born in 1815."}, {"_id": "9", "text": "x"}])
    write_rows(folder / "qrels" / "dev.tsv", "query-id\tcorpus-id\tscore\n2c<::>2\t8-0-4\t1\n2c<::>2\t9\t0\n")
    return folder


def test_mtrag_retrieval_tasks(retrieval_tasks):
    dataset = load_dataset(retrieval_tasks)
    (query,) = dataset.queries
    assert (query.question, query.history, query.rewrite) == ("When?", (("Who was Ada?", ""),), "When was Ada born?")
    assert (query.gold, query.split, query.conversation) == (("8-0-4",), "dev", "2c")
    assert len(dataset.corpus) == 2


def test_the_form_of_beir(tmp_path):
    write_rows(tmp_path / "queries.jsonl", [{"_id": "1", "text": "Who?"}])
    write_rows(tmp_path / "corpus.jsonl", [{"_id": "d", "title": "", "text": "Ada."}])
    for row, message in (("1\td\tone", "`score`"), ("1\td", "2 fields")):
        write_rows(tmp_path / "qrels" / "test.tsv", f"query-id\tcorpus-id\tscore\n{row}\n")
        with pytest.raises(InputError, match=rf"test\.tsv, line 2: {message}"):
            load_dataset(tmp_path)
    write_rows(tmp_path / "qrels" / "test.tsv", "query-id\tcorpus-id\tscore\n1\td\t1\n")
    assert load_dataset(tmp_path).queries[0].gold == ("d",)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"some": "thing"}, "no known format"),
        ([{"Question": "Who?"}], "QReCC, TopiOCQA, QuAC, CoQA, MTRAG, HotpotQA, 2WikiMultiHopQA or MuSiQue"),
        ([], "no known format"),
        ([turn(1, "Who?", Rewrite="x"), 3], r"file\.json, item 2: must be a JSON object"),
        ([turn(1, "", Rewrite="x")], r"file\.json, item 1: `Question`"),
        ([turn(1, "Who?", Rewrite="x") | {"Context": "x"}], r"item 1: `Context`"),
        ([turn(1, "Who?", Truth_passages="p")], r"item 1: `Truth_passages`"),
        ([turn(1, "Who?", Rewrite="x"), turn(1, "What?", Rewrite="x")], r"item 2: the id 'qrecc-7-1' is there already, in"),
        ([turn(1, "Who?", Topic="x", Gold_passage={"id": "1"})], r"item 1: `text`"),
        ([{"conv_id": 1, "turn_id": 1, "question": "Who? [SEP] ", "positive_ctxs": []}], "item 1: `question` ends"),
        (quac([asked(0, "When?", "x")], context=""), r"file\.json, item 1: `context`"),
        (quac([asked(0, "When?", "x"), {"id": "a"}]), r"item 1: `question`"),
        ([turn(1, "Who?", Rewrite="x")], r"has no passages; put a passage file"),
    ],
)
def test_bad_files_are_named(tmp_path, value, message):
    with pytest.raises(InputError, match=message) as caught:
        load_dataset(write_rows(tmp_path / "file.json", value))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_json(tmp_path):
    path = tmp_path / "train.json"
    path.write_text('[{"Question": \n ,]')
    with pytest.raises(InputError, match=r"train\.json, line 2: not JSON"):
        load_dataset(path)
    path.write_bytes(b'[\n{"Question": "Caf\xe9"}]')
    with pytest.raises(InputError, match=r"train\.json, line 2: not UTF-8"):
        load_dataset(path)


def test_an_id_that_stands_for_two_texts(tmp_path):
    rows = [turn(n, "Who?", Topic="x", Gold_passage={"id": "1", "text": f"Text {n}."}) for n in (1, 2)]
    with pytest.raises(InputError, match="'1' stands for two texts"):
        load_dataset(write_rows(tmp_path / "file.json", rows))
