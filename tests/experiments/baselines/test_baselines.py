import json

import pytest

from experiments.baselines.__main__ import main
from experiments.baselines.methods import ALL_METHODS
from langgraph_convcoa.evaluation.methods.base import Kit
from langgraph_convcoa.evaluation.methods.registry import make_method
from tests.fake_encoder import WordEncoder
from tests.fakes import KeywordRetriever, ScriptedModel
from tests.openai_server import OpenAIServer


@pytest.mark.parametrize("name", ALL_METHODS)
def test_every_method_can_be_made(name):
    assert make_method(name, Kit(ScriptedModel(), KeywordRetriever()), ALL_METHODS).get_name() == name


def test_the_command_measures_the_methods_that_it_is_given(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("langgraph_convcoa.retrieval.retriever.as_encoder", lambda _encoder: WordEncoder())
    monkeypatch.setenv("CONVCOA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    folder = tmp_path / "ants"
    folder.mkdir()
    (folder / "corpus.jsonl").write_text(json.dumps({"id": "p", "text": "The ants were counted in 1900."}))
    question = {"id": "q", "question": "When were the ants counted?", "answer": "1900", "gold": ["p"], "split": "dev"}
    (folder / "queries.jsonl").write_text(json.dumps(question))
    with OpenAIServer(lambda body: "So the final answer is: 1900") as server:
        arguments = [str(folder), "--model", "test", "--base-url", server.base_url, "--out", str(tmp_path / "run"), "--json"]
        monkeypatch.setattr("sys.argv", ["baselines", *arguments, "--methods", "few-shot,self-ask"])
        main()
    report = json.loads(capsys.readouterr().out)
    assert list(report["methods"]) == ["few-shot", "self-ask"]
    assert report["methods"]["self-ask"]["quality"]["cover_em"]["mean"] == 1
