import json

import pytest
from langchain_core.documents import Document

from experiments.encoder.__main__ import main
from experiments.encoder.outlier_free import attention_of, load
from experiments.encoder.training import train_pairs
from langgraph_convcoa.datasets.queries import Dataset, Query
from langgraph_convcoa.errors import InputError
from tests.retrieval.tiny_bert import save_tiny_bert

CORPUS = ("what is a network", "the river of the book", "hopfield stores a memory", "who was in it")


def test_the_encoder_learns_and_is_saved_with_its_attention(tmp_path):
    """The passage that the untrained encoder ranks last is taught to be the answer."""
    checkpoint = str(save_tiny_bert(tmp_path / "bert"))

    def ranked(encoder):
        return (encoder.encode(["memory memory"]) @ encoder.encode(CORPUS).T)[0].argsort().tolist()

    last = ranked(load(checkpoint, "softmax1"))[0]
    questions = [Query("1", "memory memory", gold=(f"p{last}",))]
    questions += [Query(str(n), text, gold=(f"p{n}",)) for n, text in enumerate(CORPUS) if n != last]
    data = Dataset("small", tuple(questions), tuple(Document(text, id=f"p{n}") for n, text in enumerate(CORPUS)))
    train_pairs(checkpoint, tmp_path / "trained", data, attention="softmax1", steps=40, learning_rate=5e-3)
    trained = load(str(tmp_path / "trained"))
    assert ranked(trained)[-1] == last
    assert attention_of(trained) == "softmax1"


def test_questions_stand_behind_the_user_turn_before_them():
    corpus = (Document("text", id="p"),)
    queries = (
        Query("1", "and when?", history=(("who?", "she"), ("where?", "there")), gold=("p", "elsewhere")),
        Query("2", "why?", gold=("elsewhere",)),
    )
    assert [query.two_turns for query in Dataset("small", queries, corpus).answerable()] == ["where? and when?"]
    with pytest.raises(InputError, match="gold passage"):
        Dataset("small", queries[1:], corpus).answerable()


def test_the_command_prints_a_row_for_each_attention(tmp_path, capsys, monkeypatch):
    write_dataset = tmp_path / "data"
    write_dataset.mkdir()
    rows = [{"id": f"p{n}", "title": "", "text": text} for n, text in enumerate(CORPUS)]
    (write_dataset / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (write_dataset / "queries.jsonl").write_text(json.dumps({"id": "1", "question": "memory memory", "gold": ["p2"]}))
    model = str(save_tiny_bert(tmp_path / "bert"))
    monkeypatch.setattr("sys.argv", ["encoder", str(write_dataset), "--model", model, "--steps", "1"])
    main()
    rows = [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]]
    assert rows == [["softmax", "0"], ["softmax", "1"], ["softmax1", "0"], ["softmax1", "1"]]
