"""A conversation's session: what it stores, what its watcher sees, and how it fails."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from langgraph_convcoa.cli.documents import documents_path, read_history
from langgraph_convcoa.cli.session import Session
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.datasets.demo import demo_folder
from langgraph_convcoa.errors import InputError, ModelError, StoreError
from langgraph_convcoa.graph import build_graph
from langgraph_convcoa.storage.turns import OUTPUT_FIELDS
from tests.fakes import KeywordRetriever, ScriptedModel, corrections, node, plan

WHEN = "When was the Hopfield network described?"
FACT = "John Hopfield described the Hopfield network in 1982."
TURN = [plan(node(WHEN)), corrections("In 1982.", final="It was described in 1982 [1].")]
BOOM = RuntimeError("boom")


class Watcher:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[Mapping[str, Any]] = []
        self.text = ""

    def progress(self, event: Mapping[str, Any]) -> None:
        self.events.append(event)

    def token(self, text: str) -> None:
        self.text += text


def session(replies: list[Any], thread: str = "a", store: Path | None = None) -> Session:
    graph = build_graph(model=ScriptedModel(replies=replies), retriever=KeywordRetriever())
    return Session(graph, ConvCoAContext(), thread, store)


def rounds(output: Mapping[str, Any]) -> int:
    return len(output["knowledge_set"]["Contextual knowledge set"])


def test_a_watcher_sees_the_answer_and_each_sub_question() -> None:
    watcher = Watcher()
    with session(list(TURN)) as conversation:
        output = conversation.ask(WHEN, watcher)
    assert watcher.text == output["answer"] == "It was described in 1982 [1]."
    assert {event["type"] for event in watcher.events} == {"look", "plan", "sub_question", "answer"}
    assert tuple(output) == OUTPUT_FIELDS


def test_a_store_that_breaks_during_the_conversation_is_a_store_error(tmp_path: Path) -> None:
    store = tmp_path / "chats.sqlite"
    with session([*TURN, *TURN], store=store) as conversation:
        conversation.ask(WHEN)
        other = sqlite3.connect(store)
        other.execute("DROP TABLE checkpoints")
        other.commit()
        other.close()
        with pytest.raises(StoreError, match="cannot be used"):
            conversation.ask(WHEN)


def interrupted(store: Path, **more: Any) -> None:
    """A turn that fails in its last model call, after a plan that is stored; its guess is kept."""
    graph = build_graph(model=ScriptedModel(replies=[plan(node(WHEN, FACT)), BOOM]), retriever=KeywordRetriever())
    with Session(graph, ConvCoAContext(), "a", store, **more) as conversation, pytest.raises(ModelError):
        conversation.ask(WHEN)


@pytest.mark.parametrize("how", ["asked again", "resumed"])
def test_an_interrupted_turn_goes_on_without_the_calls_that_were_made(tmp_path: Path, how: str) -> None:
    store = tmp_path / "chats.sqlite"
    interrupted(store)
    with session([TURN[1]], store=store) as conversation:
        assert conversation.unfinished() == WHEN
        output = conversation.ask(None) if how == "resumed" else conversation.ask(WHEN)
        assert output["answer"] == "It was described in 1982 [1]."
        assert rounds(output) == 1
        assert conversation.unfinished() == ""
        with pytest.raises(InputError, match="no interrupted turn"):
            conversation.ask(None)
    with session([], store=store) as conversation:
        assert conversation.last() == output
        assert [entry["answer"] for entry in conversation.rounds()] == [output["answer"]]


def test_a_turn_over_other_sources_is_not_gone_on_with(tmp_path: Path) -> None:
    store = tmp_path / "chats.sqlite"
    interrupted(store, sources="old documents")
    with session(list(TURN), store=store) as conversation:
        assert conversation.unfinished() == ""
        # Both calls are made again: the evidence that is stored is not of these documents.
        assert rounds(conversation.ask(WHEN)) == 1


def test_demo_is_a_path_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert documents_path("demo") == demo_folder()
    (tmp_path / "demo").mkdir()
    assert documents_path("demo") == Path("demo")


def test_an_empty_history_is_no_history(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[]")
    assert read_history(tmp_path / "a.json") == []
    (tmp_path / "a.json").write_text("7")
    with pytest.raises(InputError):
        read_history(tmp_path / "a.json")
