"""Fuzzing of thread files: an import takes a file whole or refuses it in one line, and what it takes can be kept and shown."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from langgraph_convcoa import build_graph
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.memory.knowledge_set import ROOT, ContextualKnowledgeSet
from langgraph_convcoa.storage.thread_export import KIND, file_as_values, read_thread_file, thread_as_file, thread_as_markdown
from tests.fakes import KeywordRetriever
from tests.fuzz import fuzzed

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=6)
    | st.sampled_from(["\x00", "\ud83d", "\x1b[31m", "9" * 30, [[[[]]]], {"type": "human"}, ["a", "b"]]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@cache
def exported() -> str:
    config: Any = {"configurable": {"thread_id": "a"}}
    graph = build_graph(retriever=KeywordRetriever()).compile(checkpointer=InMemorySaver())
    for question in ("Who described the Hopfield network?", "When was sparsemax introduced?"):
        graph.invoke({"question": question}, config)
    return json.dumps(thread_as_file("a", graph.get_state(config).values))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inner for place in places(item, (*path, key)))]


def taken_or_refused(data: Any) -> None:
    try:
        values = file_as_values(data)
    except InputError:
        return
    serde = JsonPlusSerializer()
    assert serde.loads_typed(serde.dumps_typed(values)) is not None
    text = json.dumps(thread_as_file("a", values), ensure_ascii=False)
    assert "\x00" not in text
    text.encode()
    assert "\x1b" not in thread_as_markdown({"thread": "a", "state": json.loads(text)["state"]})
    ContextualKnowledgeSet.load(values.get("knowledge_set")).view()


@fuzzed
@given(st.data())
def test_a_file_with_something_else_in_a_place_is_taken_or_refused(data: st.DataObject) -> None:
    file = json.loads(exported())
    path = data.draw(st.sampled_from(places(file)[1:]))
    junk = data.draw(JUNK)
    inner = file
    for key in path[:-1]:
        inner = inner[key]
    if data.draw(st.booleans()):
        inner[path[-1]] = junk
    else:
        del inner[path[-1]]
    taken_or_refused(copy.deepcopy(file))


@fuzzed
@given(JUNK, st.lists(st.fixed_dictionaries({}, optional={
    "round": JUNK, "original_question": JUNK, "optimized_question": st.text(max_size=5), "sub_questions": JUNK | st.just({}),
    "information_summaries": JUNK | st.just({}), "answer": st.text(max_size=5) | JUNK, "convcoa": JUNK,
}), max_size=3))  # fmt: skip
def test_any_knowledge_set_is_taken_or_refused(junk: Any, rounds: list[Any]) -> None:
    thread = {"kind": KIND, "format": 1, "state": {"messages": junk}}
    for data in (junk, {ROOT: junk}, {ROOT: rounds}, thread):
        taken_or_refused(data)


@fuzzed
@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")))
def test_any_file_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    file = Path(tmp_path_factory.getbasetemp()) / "thread.json"
    file.write_bytes(content)
    try:
        data = read_thread_file(file)
    except InputError:
        return
    taken_or_refused(data)
