"""Knowledge that a user's threads share: when asked for, by user, and never otherwise."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.base import BaseStore, SearchItem
from langgraph.store.memory import InMemoryStore

from langgraph_convcoa.cli.session import Session
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.graph import build_graph
from langgraph_convcoa.memory.knowledge_set import ContextualKnowledgeSet, Round
from langgraph_convcoa.memory.sharing import aforget_thread, share_round, shared_rounds, user_of
from langgraph_convcoa.storage import open_store
from tests.fakes import KeywordRetriever, ScriptedModel, corrections, node, plan

USERS = ["ann", "anna", "an", "ANN", "ann.b", "ann/b", "ann:b", "ann b", "ann%", "ann_", "a\0b", "", "*", "café", "x" * 400]


def entry(text: str, number: int = 1) -> Round:
    knowledge = ContextualKnowledgeSet()
    for _ in range(number):
        knowledge.add_round(f"What is {text}?", f"What is {text}?", [], f"{text} is it.")
    return knowledge.rounds[-1]


def questions(rounds: list[Round]) -> list[str]:
    return [one["original_question"] for one in rounds]


@pytest.mark.parametrize("on_disk", [False, True])
async def test_no_user_reads_what_another_shares_whatever_the_ids(on_disk: bool, tmp_path: Path) -> None:
    if on_disk:
        pytest.importorskip("langgraph.store.sqlite.aio")
    users = [user for user in USERS if user]
    async with open_store(tmp_path / "store.sqlite" if on_disk else None).shared() as store:
        for user in users:
            await asyncio.to_thread(share_round, store, user, "t", entry(f"of {user}"))
        for user in users:
            assert await read(store, user) == [f"What is of {user}?"]
        with pytest.raises(InputError, match="user_id"):
            await read(store, "")


@pytest.mark.parametrize("authenticated", ["", 7, b"ann"])
def test_a_user_that_the_server_cannot_tell_is_nobody(authenticated: object) -> None:
    with pytest.raises(InputError, match="user"):
        user_of("ann", {"configurable": {"langgraph_auth_user_id": authenticated, "user_id": "ann"}})


async def read(store: BaseStore, user: str, **more: Any) -> list[str]:
    return questions(await asyncio.to_thread(shared_rounds, store, user, **more))


async def test_a_thread_is_forgotten_alone_and_its_own_rounds_are_left_out() -> None:
    store: BaseStore = InMemoryStore()
    for thread in ("one", "two"):
        for number in (1, 2):
            await asyncio.to_thread(share_round, store, "ann", thread, entry(f"{thread}{number}", number))
            # A turn that was killed and resumed shares its round again.
            await asyncio.to_thread(share_round, store, "ann", thread, entry(f"{thread}{number}", number))
    assert await read(store, "ann") == [f"What is {t}?" for t in ("one1", "one2", "two1", "two2")]
    assert await read(store, "ann", but_of="one") == ["What is two1?", "What is two2?"]
    assert await read(store, "ann", limit=1) == ["What is two2?"]
    assert await aforget_thread(store, "one") == 2
    assert await read(store, "ann") == ["What is two1?", "What is two2?"]


class NewestFirst(InMemoryStore):
    """A store that returns the newest first, as databases do."""

    read = 0

    def search(self, prefix: tuple[str, ...], /, *, limit: int = 10, offset: int = 0, **more: Any) -> list[SearchItem]:
        found = sorted(super().search(prefix, limit=10_000), key=lambda item: item.updated_at, reverse=True)
        self.read += len(page := found[offset : offset + limit])
        return page


def test_not_all_rounds_of_a_user_are_read_for_a_turn() -> None:
    store, first = NewestFirst(), entry("it")
    for number in range(500):
        share_round(
            store, "ann", "own" if number >= 490 else "t", {**first, "round": number, "original_question": str(number)}
        )
    assert questions(shared_rounds(store, "ann", but_of="own", limit=50)) == [str(number) for number in range(440, 490)]
    assert store.read <= 200
    assert len(shared_rounds(store, "ann", limit=1_000)) == 500


def run(graph: Any, thread: str, question: str, **settings: object) -> dict[str, Any]:
    result: dict[str, Any] = graph.invoke({"question": question}, {"configurable": {"thread_id": thread}}, context=settings)
    return result


def prompts_of_the_second_thread(first: dict[str, Any], second: dict[str, Any]) -> str:
    """What the model is shown in another thread, after one that learnt of 1982."""
    turn = [plan(node("When was the Hopfield network described?")), corrections("In 1982.", final="It was in 1982 [1].")]
    other = [plan(node("Who introduced sparsemax?")), corrections("Martins.", final="Martins [1].")]
    model = ScriptedModel(replies=[*turn, *other])
    graph = build_graph(model=model, retriever=KeywordRetriever()).compile(checkpointer=InMemorySaver(), store=InMemoryStore())
    run(graph, "a", "When was the Hopfield network described?", **first)
    seen = len(model.prompts)
    run(graph, "b", "And the Hopfield network, when was that described?", **second)
    return model.prompts[seen]


ANN: dict[str, Any] = {"share_knowledge": True, "user_id": "ann"}


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        (ANN, ANN, True), ({}, {}, False), ({"user_id": "ann"}, {"user_id": "ann"}, False), (ANN, {"user_id": "ann"}, False),
        ({"user_id": "ann"}, ANN, False), (ANN, {**ANN, "user_id": "ann.b"}, False),
    ],
)  # fmt: skip
def test_threads_of_one_user_share_when_asked_for_and_never_otherwise(first: Any, second: Any, shared: bool) -> None:
    assert ("It was in 1982" in prompts_of_the_second_thread(first, second)) == shared


def test_sharing_without_a_user_or_a_store_says_what_is_missing() -> None:
    plain = build_graph(retriever=KeywordRetriever())
    with pytest.raises(InputError, match="user_id"):
        run(plain.compile(store=InMemoryStore(), checkpointer=InMemorySaver()), "a", "When?", share_knowledge=True)
    without_thread = plain.compile(store=InMemoryStore())
    with pytest.raises(InputError, match="thread"):
        without_thread.invoke({"question": "When?"}, context=ConvCoAContext(**ANN))
    with pytest.raises(InputError, match="store"):
        run(plain.compile(checkpointer=InMemorySaver()), "a", "When?", share_knowledge=True, user_id="ann")


def test_a_session_shares_in_its_own_store(tmp_path: Path) -> None:
    pytest.importorskip("langgraph.store.sqlite.aio")
    settings = ConvCoAContext(share_knowledge=True, user_id="ann")
    graph = build_graph(retriever=KeywordRetriever())
    with Session(graph, settings, "a", tmp_path / "s.sqlite") as session:
        session.ask("When was the Hopfield network described?")

    async def shared() -> list[Round]:
        async with open_store(tmp_path / "s.sqlite").shared() as store:
            return await asyncio.to_thread(shared_rounds, store, "ann")

    assert questions(asyncio.run(shared())) == ["When was the Hopfield network described?"]
