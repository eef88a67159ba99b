"""Threads listed, exported, imported and deleted, with nothing lost and nothing left."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_convcoa.cli.session import Session
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.errors import InputError, ModelError, StoreError
from langgraph_convcoa.graph import build_graph
from langgraph_convcoa.memory.knowledge_set import ContextualKnowledgeSet
from langgraph_convcoa.state import ConvCoAState, ThreadState
from langgraph_convcoa.storage import FORMAT
from langgraph_convcoa.storage.thread_export import file_as_values, lasting_fields, read_thread_file, thread_as_markdown
from langgraph_convcoa.storage.threads import Threads
from langgraph_convcoa.storage.turns import OUTPUT_FIELDS
from tests.fakes import BACK, VAGUE, KeywordRetriever, ScriptedModel, asking, direct, node, plan

WHEN = "When was the Hopfield network described?"
SECRET = "xyzzyplugh"


def session(store: Path | str, thread: str = "a", **settings: Any) -> Session:
    return Session(build_graph(retriever=KeywordRetriever()), ConvCoAContext(**settings), thread, store)


def comparable(output: dict[str, Any]) -> dict[str, Any]:
    data = json.loads(json.dumps({name: output[name] for name in OUTPUT_FIELDS}))
    data["usage"] = {key: value for key, value in data["usage"].items() if key not in ("seconds", "per_node")}
    for entry in data["knowledge_set"]["Contextual knowledge set"]:
        entry["convcoa"].pop("time")
    return data


def test_a_thread_is_what_outlasts_a_turn() -> None:
    assert set(lasting_fields()) == set(ThreadState.__annotations__) < set(ConvCoAState.__annotations__)
    assert {"messages", "knowledge_set", "answer", "evidence_memory"} <= set(lasting_fields())


def test_a_finished_turn_leaves_nothing_in_the_fields_that_do_not_last() -> None:
    """Or an imported thread would answer otherwise than the one that was exported."""
    graph = build_graph(retriever=KeywordRetriever()).compile(checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "a"}}
    graph.invoke({"question": WHEN}, thread)
    before = graph.get_state(thread).values
    copy = {"configurable": {"thread_id": "b"}}
    graph.update_state(copy, {name: before[name] for name in lasting_fields() if name in before}, as_node="remember")
    follow_up = {"question": "Who introduced sparsemax?"}
    assert comparable(graph.invoke(follow_up, copy)) == comparable(graph.invoke(follow_up, thread))


def test_a_question_back_is_exported_and_answered_in_the_imported_thread(tmp_path: Path) -> None:
    store, model = tmp_path / "s.sqlite", ScriptedModel(replies=[asking(), direct("It was described in 1982 [1].")])
    graph = build_graph(model=model, retriever=KeywordRetriever())
    with Session(graph, None, "a", store) as conversation:
        assert conversation.ask(VAGUE)["clarification"] == conversation.last()["clarification"] == BACK
    with Threads(store) as threads:
        exported = json.loads(json.dumps(threads.export("a")))
        assert thread_as_markdown(exported) == f"# a\n\n## {VAGUE}\n\n{BACK}\n"
        threads.add(exported, "b")
    with Session(graph, None, "b", store) as conversation:
        assert conversation.ask("The network.")["answer"] == "It was described in 1982 [1]."
        assert [entry["original_question"] for entry in conversation.rounds()] == [f"{VAGUE}\n{BACK}\nThe network."]


def test_a_thread_exported_deleted_and_imported_answers_the_follow_up_as_before(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    with session(store) as conversation:
        for question in (WHEN, "Who introduced sparsemax?"):
            conversation.ask(question)
    with Threads(store) as threads:
        exported = json.loads(json.dumps(threads.export("a")))
        assert threads.add(exported, "b") == "b"
        threads.delete("a")
        assert threads.add(exported) == "a"
        assert threads.export("a")["state"] == exported["state"]
        assert [summary.rounds for summary in threads.summaries()] == [2, 2]
    outputs = []
    for thread in ("a", "b"):
        with session(store, thread) as conversation:
            outputs.append(comparable(conversation.ask("When was it introduced?")))
    assert outputs[0] == outputs[1]
    other = tmp_path / "other.sqlite"
    with session(other, "never exported") as conversation:
        for question in (WHEN, "Who introduced sparsemax?"):
            conversation.ask(question)
        assert comparable(conversation.ask("When was it introduced?")) == outputs[0]


def test_a_deleted_thread_leaves_no_text_in_any_file(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    sharing = {"share_knowledge": True, "user_id": "ann"}
    for thread in ("kept", f"{SECRET} thread", "kept"):
        # One that shares as well would have learnt of it, and that is its own knowledge then.
        with session(store, thread, **(sharing if SECRET in thread else {})) as conversation:
            for n in range(3):
                word = SECRET if SECRET in thread else "plain"
                conversation.ask(f"When was the Hopfield network described, {word}{n}?")

    def files_with(word: str) -> list[str]:
        return [path.name for path in tmp_path.rglob("*") if path.is_file() and word.encode() in path.read_bytes()]

    assert files_with(SECRET)
    with Threads(store) as threads:
        threads.delete(f"{SECRET} thread")
        assert [summary.rounds for summary in threads.summaries()] == [6]
        assert files_with(SECRET) == []
    assert files_with(SECRET) == []
    assert files_with("plain")


def test_a_deletion_that_another_program_keeps_from_the_file_is_told(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    with session(store) as conversation:
        conversation.ask(WHEN)
    with closing(sqlite3.connect(store)) as reader, Threads(store) as threads:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM checkpoints").fetchall()
        with pytest.raises(StoreError, match="another program"):
            threads.delete("a")
        # The store can still be used, and what is left over goes when it can.
        assert threads.summaries() == []
        reader.rollback()
        log = store.with_name("s.sqlite-wal")
        assert b"Hopfield" in store.read_bytes() + log.read_bytes()
        with pytest.raises(InputError, match="no thread"):
            threads.delete("a")
        assert b"Hopfield" not in store.read_bytes() + (log.read_bytes() if log.exists() else b"")


def test_a_file_stays_small_because_old_checkpoints_are_dropped(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    sizes = []
    with session(store) as conversation:
        for n in range(8):
            conversation.ask(f"When was the Hopfield network described, {n}?")
            with closing(sqlite3.connect(store)) as connection:
                (count, size) = connection.execute("SELECT count(*), sum(length(checkpoint)) FROM checkpoints").fetchone()
                (writes,) = connection.execute("SELECT count(*) FROM writes").fetchone()
            assert (count, writes) == (1, 0)
            sizes.append(size)
    # As much for the last round as for the second: what is kept grows with what was said and no faster.
    assert sizes[7] - sizes[6] < 1.5 * (sizes[2] - sizes[1])


def test_an_unfinished_turn_is_listed_and_not_exported(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    kept = plan(node(WHEN, "John Hopfield described the Hopfield network in 1982."))
    model = ScriptedModel(replies=[kept, RuntimeError("boom")])
    graph = build_graph(model=model, retriever=KeywordRetriever())
    with Session(graph, ConvCoAContext(), "a", store) as conversation, pytest.raises(ModelError):
        conversation.ask(f"{SECRET}?")
    with Threads(store) as threads:
        [summary] = threads.summaries()
        assert (summary.rounds, summary.unfinished) == (0, f"{SECRET}?")
        assert SECRET not in json.dumps(threads.export("a"))


@pytest.mark.slow
def test_an_answer_of_ten_megabytes_is_stored_shown_exported_and_gone_on_from(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    long = "The network was described in 1982. " * 300_000
    knowledge = ContextualKnowledgeSet()
    knowledge.add_round(WHEN, WHEN, [], long)
    with Threads(store) as threads:
        threads.add(knowledge.export(strict=True), "long")
    with session(store, "long") as conversation:
        output = conversation.ask("Who introduced sparsemax?")
        assert "Martins" in output["answer"]
        assert len(conversation.rounds()[0]["answer"]) == len(long)
    with Threads(store) as threads:
        assert len(threads.export("long")["state"]["messages"][1]["content"]) == len(long)


def test_a_bare_knowledge_set_becomes_a_thread(tmp_path: Path) -> None:
    with session(tmp_path / "one.sqlite") as conversation:
        output = conversation.ask(WHEN)
    with Threads(tmp_path / "two.sqlite") as threads:
        threads.add(output["knowledge_set"], "b")
        assert threads.show("b") == output["knowledge_set"]["Contextual knowledge set"]
    with session(tmp_path / "two.sqlite", "b") as conversation:
        assert len(conversation.ask("Who introduced sparsemax?")["knowledge_set"]["Contextual knowledge set"]) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "other"}, "no exported thread"), ({"format": FORMAT + 1}, "upgrade"), ({"format": "x"}, "upgrade"),
        ({"state": []}, "no exported thread"), ({"state": {"messages": [{"type": "nobody"}]}}, "damaged in 'messages'"),
        ({"state": {"knowledge_set": {"Contextual knowledge set": [{"round": 1}]}}}, "damaged in 'knowledge_set'"),
    ],
)  # fmt: skip
def test_files_that_are_no_threads_are_told(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with session(tmp_path / "s.sqlite") as conversation:
        conversation.ask(WHEN)
        exported = conversation.export()
    with pytest.raises(InputError, match=message):
        file_as_values({**exported, **change})
    for text in ("", "[" * 100_000, "{"):
        (tmp_path / "file").write_text(text)
        with pytest.raises(InputError, match="no exported thread"):
            read_thread_file(tmp_path / "file")
    for data in (7, [], {"Contextual knowledge set": 7}, {"Contextual knowledge set": [{"round": 1, "answer": ""}]}):
        with pytest.raises(InputError):
            file_as_values(data)


def test_what_is_there_is_not_overwritten_and_names_that_cannot_be_are_told(tmp_path: Path) -> None:
    with session(tmp_path / "s.sqlite") as conversation:
        conversation.ask(WHEN)
        exported = conversation.export()
    with Threads(tmp_path / "s.sqlite") as threads:
        for name, told in ((None, "already"), ("", "has no name")):
            with pytest.raises(InputError, match=told):
                threads.add(exported, name)
        for use in (threads.show, threads.export, threads.delete):
            for name, told in (("b", "no thread 'b'"), ("\udcff", "no thread")):
                with pytest.raises(InputError, match=told):
                    use(name)


def test_markdown_is_for_reading(tmp_path: Path) -> None:
    with session(tmp_path / "s.sqlite") as conversation:
        answer = conversation.ask(WHEN)["answer"]
        text = thread_as_markdown(conversation.export())
    assert text.startswith(f"# a\n\n## {WHEN}\n\n{answer}\n\n- [1] hopfield-1982.md: John Hopfield")
