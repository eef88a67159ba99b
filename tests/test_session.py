"""A conversation's session: what it stores, what its watcher sees, and how it fails."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.demo import demo_folder
from langgraph_convcoa.errors import InputError, ModelError, StoreError
from langgraph_convcoa.graph import build_graph
from langgraph_convcoa.session import OUTPUT_FIELDS, Session, check_store, documents_path, read_history
from tests.fakes import KeywordRetriever, ScriptedModel, corrections, node, plan

ROOT = Path(__file__).parents[1]
WHEN = "When was the Hopfield network described?"
TURN = [plan(node(WHEN)), corrections("In 1982."), "It was described in 1982 [1]."]


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
    assert {event["type"] for event in watcher.events} == {"plan", "sub_question", "answer"}
    assert tuple(output) == OUTPUT_FIELDS


def test_without_a_store_the_conversation_lives_as_long_as_the_session() -> None:
    with session([*TURN, *TURN]) as conversation:
        assert [rounds(conversation.ask(WHEN)) for _ in range(2)] == [1, 2]
    with session(list(TURN)) as conversation:
        assert rounds(conversation.ask(WHEN)) == 1


def test_with_a_store_it_outlives_the_session_and_threads_stay_apart(tmp_path: Path) -> None:
    store = tmp_path / "chats.sqlite"
    for thread, expected in (("a", 1), ("b", 1), ("a", 2)):
        with session(list(TURN), thread, store) as conversation:
            assert rounds(conversation.ask(WHEN)) == expected


def test_a_failed_turn_leaves_the_conversation_as_it_was(tmp_path: Path) -> None:
    store = tmp_path / "chats.sqlite"
    with session([*TURN, plan(node(WHEN)), RuntimeError("boom"), RuntimeError("boom")], store=store) as conversation:
        conversation.ask(WHEN)
        # The corrections fail, where evidence stands in; then the answer fails.
        with pytest.raises(ModelError):
            conversation.ask("What fails?")
    with session(list(TURN), store=store) as conversation:
        output = conversation.ask(WHEN)
    assert rounds(output) == 2
    assert "What fails?" not in str(output["knowledge_set"])


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


def test_a_store_is_checked_without_being_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = tmp_path / "theirs.sqlite"
    connection = sqlite3.connect(theirs)
    connection.execute("CREATE TABLE notes (x)")
    connection.commit()
    connection.close()
    before = theirs.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        check_store(theirs)
    assert theirs.read_bytes() == before
    monkeypatch.setattr("os.access", lambda *_arguments: False)
    with pytest.raises(StoreError, match="cannot be written"):
        check_store(theirs)


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


@pytest.mark.slow
def test_two_programs_on_one_thread_take_turns(tmp_path: Path) -> None:
    store = tmp_path / "store.sqlite"
    script = textwrap.dedent("""
        import sys
        from pathlib import Path
        from langgraph_convcoa import ConvCoAContext, build_graph
        from langgraph_convcoa.session import Session
        from tests.fakes import KeywordRetriever
        with Session(build_graph(retriever=KeywordRetriever()), ConvCoAContext(), "t", Path(sys.argv[1])) as session:
            for n in range(5):
                session.ask(f"When was the Hopfield network described, {sys.argv[2]}{n}?")
    """)
    programs = [subprocess.Popen([sys.executable, "-c", script, str(store), name], cwd=ROOT) for name in "ab"]
    assert [program.wait(120) for program in programs] == [0, 0]
    with Session(build_graph(retriever=KeywordRetriever()), ConvCoAContext(), "t", store) as session:
        out = session.ask("Who introduced sparsemax?")
    assert len(out["knowledge_set"]["Contextual knowledge set"]) == 11
