"""A turn that ends at any write to its store and is asked again: one round, and no call that was stored is made again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.graph import build_graph
from langgraph_convcoa.storage import ConversationStore
from langgraph_convcoa.storage.turns import Turns, rounds_of
from tests.fakes import BACK, VAGUE, KeywordRetriever, ScriptedModel, asking, direct

QUESTION = "When was the Hopfield network described?"
ANSWER = "John Hopfield described the Hopfield network in 1982 [1]."


class Killed(Exception):
    """In place of the end of the process."""


class Dying(InMemorySaver):
    """Fails at one of its writes and from then on, as for a process that is killed there."""

    left = 10**6

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        # Shared with the copy of it that a graph makes.
        self.written: list[int] = []

    async def aput(self, *given: Any, **more: Any) -> Any:
        self._live()
        return await super().aput(*given, **more)

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        self._live()
        await super().aput_writes(config, writes, task_id, task_path)

    def _live(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed
        self.written.append(self.left)


class Store(ConversationStore):
    def __init__(self, saver: InMemorySaver) -> None:
        self.saver = saver

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[InMemorySaver]:
        yield self.saver


def turns(saver: InMemorySaver, model: ScriptedModel) -> Turns:
    graph = build_graph(model=model, retriever=KeywordRetriever())
    return Turns(graph.compile(checkpointer=saver), Store(saver))


@pytest.mark.parametrize("form", ["messages", "question"])
async def test_a_turn_that_is_killed_at_any_write_is_one_round_when_it_is_asked_again(form: str) -> None:
    planned = repeatable = whole = 0
    for writes in range(40):
        saver, model = Dying(), ScriptedModel(by_prompt=lambda _: direct(ANSWER))
        given: dict[str, Any] = (
            {"messages": [HumanMessage(QUESTION, id="q1")]} if form == "messages" else {"question": QUESTION}
        )
        saver.left = writes
        try:
            await turns(saver, model).run("t", given)
            whole = writes
        except Killed:
            pass
        saver.left = 10**6
        if whole and form == "question":
            break  # What was answered is another question, where nothing tells them apart.
        before = len(model.prompts)
        stored = any(path.endswith(" plan") for held in saver.writes.values() for *_, path in held.values())
        output = await turns(saver, model).run("t", given)
        assert output["answer"] == ANSWER
        [one] = rounds_of((await turns(saver, model).snapshot("t")).values)
        assert one["original_question"] == QUESTION
        if stored:
            repeatable += 1
            assert len(model.prompts) == before, f"after {writes} writes a stored call was repeated"
        planned += before
        if whole:
            break
    assert whole > 10
    assert planned >= repeatable > 0


async def test_a_message_that_was_answered_is_answered_again_and_a_new_one_is_a_new_round() -> None:
    model = ScriptedModel(by_prompt=lambda _: direct(ANSWER))
    talk = turns(InMemorySaver(), model)
    seen: list[tuple[str, Any]] = []
    for _ in range(3):
        output = await talk.run("t", {"messages": [HumanMessage(QUESTION, id="q1")]}, lambda *part: seen.append(part))
        assert output["answer"] == ANSWER
        assert seen[-1][0] == "values"
        assert seen[-1][1]["answer"] == ANSWER
    assert len(model.prompts) == 1
    output = await talk.run("t", {"messages": [HumanMessage(QUESTION, id="q2")]})
    assert len(output["knowledge_set"]["Contextual knowledge set"]) == 2
    with pytest.raises(InputError, match="no interrupted turn"):
        await talk.run("t", None)


async def test_a_message_that_was_edited_is_a_new_question_in_place_of_the_old() -> None:
    model = ScriptedModel(by_prompt=lambda _: direct(ANSWER))
    talk = turns(InMemorySaver(), model)

    async def ask(text: str, identity: str) -> list[tuple[str | None, str]]:
        output = await talk.run("t", {"messages": [HumanMessage(text, id=identity)]})
        assert output["answer"] == ANSWER
        values = (await talk.snapshot("t")).values
        assert rounds_of(values)[-1]["original_question"] == text
        return [(message.id, message.text) for message in values["messages"] if message.type == "human"]

    await ask("When was it described?", "q1")
    for _ in range(2):
        # Sent again as it is, it is answered.
        assert await ask(QUESTION, "q1") == [("q1", QUESTION)]
    assert len(model.prompts) == 2
    await ask("And by whom?", "q2")
    # An older one.
    for _ in range(2):
        assert await ask("When was it published?", "q1") == [("q2", "And by whom?"), ("q1", "When was it published?")]
    assert len(model.prompts) == 4
    values = (await talk.snapshot("t")).values
    assert [message.type for message in values["messages"]] == ["human", "ai", "human", "ai"]
    assert len(rounds_of(values)) == 4


async def test_an_older_message_that_is_sent_again_as_it_is_gets_its_own_answer() -> None:
    model = ScriptedModel(by_prompt=lambda _: direct(ANSWER))
    saver = Dying()
    talk = turns(saver, model)
    first = await talk.run("t", {"messages": [HumanMessage(QUESTION, id="q1")]})
    second = await talk.run("t", {"messages": [HumanMessage("When was it published?", id="q2")]})
    assert second["chain"] != first["chain"]
    seen: list[Any] = []
    for _ in range(2):
        again = await talk.run("t", {"messages": [HumanMessage(QUESTION, id="q1")]}, lambda *part: seen.append(part))
        assert [again[name] for name in ("answer", "citations", "chain")] == [ANSWER, first["citations"], first["chain"]]
        assert (seen[-1][0], seen[-1][1]["answer"]) == ("values", ANSWER)
    # While another turn is unfinished, too, and that stays.
    saver.left = 5
    with pytest.raises(Killed):
        await turns(saver, model).run("t", {"question": "And where?"})
    saver.left = 10**6
    for identity, text in (("q2", "When was it published?"), ("q1", QUESTION)):
        await talk.run("t", {"messages": [HumanMessage(text, id=identity)]})
    assert (await talk.run("t", None))["answer"] == ANSWER
    assert len(model.prompts) == 3
    values = (await talk.snapshot("t")).values
    assert [message.text for message in values["messages"]][::2] == [QUESTION, "When was it published?", "And where?"]
    assert len(rounds_of(values)) == 3


async def test_a_question_is_asked_whatever_messages_come_with_it() -> None:
    model = ScriptedModel(by_prompt=lambda _: direct(ANSWER))
    talk = turns(InMemorySaver(), model)
    sent = HumanMessage("When was it described?", id="q1")
    for number, question in enumerate(["By whom?", "And where?"], 2):
        await talk.run("t", {"messages": [sent]})
        await talk.run("t", {"question": question, "messages": [sent]})
        values = (await talk.snapshot("t")).values
        assert rounds_of(values)[-1]["original_question"] == question
        assert [message.type for message in values["messages"]] == ["human", "ai"] * number
        assert values["messages"][0].id == "q1"


async def test_a_message_that_is_edited_while_its_turn_is_unfinished_is_asked_as_it_is_now() -> None:
    saver, model = Dying(), ScriptedModel(by_prompt=lambda _: direct(ANSWER))
    await turns(saver, model).run("t", {"messages": [HumanMessage(QUESTION)]})
    whole = len(saver.written)
    for writes in (1, whole // 2, whole - 2, whole - 1):
        saver = Dying()
        saver.left = writes
        with pytest.raises(Killed):
            await turns(saver, model).run("t", {"messages": [HumanMessage("When was it?", id="q1")]})
        saver.left = 10**6
        await turns(saver, model).run("t", {"messages": [HumanMessage(QUESTION, id="q1")]})
        values = (await turns(saver, model).snapshot("t")).values
        # By its last write the first question is answered.
        before = ["When was it?"] if writes == whole - 1 else []
        assert [one["original_question"] for one in rounds_of(values)] == [*before, QUESTION]
        assert [(message.type, message.text) for message in values["messages"]] == [("human", QUESTION), ("ai", ANSWER)]


async def test_a_message_that_was_asked_back_is_asked_back_again_when_it_is_sent_again() -> None:
    model = ScriptedModel(replies=[asking(), direct(ANSWER)])
    talk = turns(InMemorySaver(), model)
    first = [HumanMessage(VAGUE, id="q1")]
    for given in (first, first, [HumanMessage("The network.", id="q2")], first):
        output = await talk.run("t", {"messages": given})
        assert output["clarification"] == (BACK if given is first else "")
        assert output["answer"] == (BACK if given is first else ANSWER)
