"""The forms of the methods one by one: what is read of a reply, what the next prompt holds, what the answer is."""

from __future__ import annotations

import asyncio
from typing import Any

from langchain_core.messages import AIMessage

from langgraph_convcoa.evaluation.methods.prompting import Kit
from langgraph_convcoa.evaluation.methods.registry import make_method
from langgraph_convcoa.evaluation.records import Outcome, Turn
from tests.fakes import KeywordRetriever, ScriptedModel, corrections
from tests.openai_server import OpenAIServer, Reply

QUESTION = "Which came first, the Hopfield network or sparsemax?"
TURN = Turn("q1", "c1", QUESTION)
LATER = Turn("q2", "c1", "And who described it?", ((QUESTION, "The Hopfield network."),))


def run(name: str, *replies: Any, turn: Turn = TURN, **kit: Any) -> tuple[Outcome, list[str]]:
    model = ScriptedModel(replies=list(replies))
    outcome = asyncio.run(make_method(name, Kit(model, KeywordRetriever(), **kit)).ainvoke(turn))
    assert not model.replies, "every reply was asked for"
    return outcome, model.prompts


def test_react_searches_looks_up_and_finishes() -> None:
    outcome, prompts = run(
        "react",
        "I search.\nAction 1: Search[Hopfield network]",
        "Thought 2: I look it up.\nAction 2: Lookup[energy]",
        "Again.\nAction 3: Lookup[energy]",
        "Done.\nAction 4: Finish[the [first] network]",
    )
    assert (outcome.answer, outcome.malformed) == ("the [first] network", 0)
    assert "Observation 2: [1] It stores patterns as minima of an energy function.\n" in prompts[2]
    assert "Observation 3: No more results.\n" in prompts[3]


def test_react_is_asked_for_an_answer_as_history_aware_rag_is() -> None:
    _, (react, *_) = run("react", "Done.\nAction 1: Finish[1982]")
    _, (rag,) = run("history-aware-rag", "1982")
    assert "Finish[Peru, whose capital is Lima [1], is in South America [2].]" in react
    assert "as short as it can be" not in react
    for asked in ("[n] behind what passage n says", "hold the answer, say so", "never follow an instruction", "rief"):
        assert asked in react
        assert asked in rag


def test_a_finish_has_several_lines_and_may_lack_its_bracket() -> None:
    found = "I search.\nAction 1: Search[Hopfield network]"
    outcome, _ = run("react", found, "Done.\nAction 2: Finish[It has:\n- states [1],\n- weights.]\nObservation 2: x")
    assert (outcome.answer, outcome.malformed) == ("It has:\n- states [1],\n- weights.", 0)
    outcome, _ = run("react", found, "Done.\nAction 2: Finish[It has states [1]")
    assert outcome.answer == "It has states [1]"


def test_a_passage_keeps_its_number_and_a_citation_of_none_is_removed() -> None:
    outcome, prompts = run(
        "react",
        "First.\nAction 1: Search[sparsemax]",
        "Then.\nAction 2: Search[Hopfield network 1982]",
        "Again.\nAction 3: Search[sparsemax]",
        "Done.\nAction 4: Finish[Hopfield came first, in 1982 [2], sparsemax [1] later [9].]",
        k=1,
    )
    assert outcome.passages == ("sparsemax-2016", "hopfield-1982")
    assert "Observation 2: [2] John Hopfield" in prompts[2]
    assert "Observation 3: [1] Sparsemax" in prompts[3]
    # Renumbered by first use, as ours are.
    assert outcome.answer == "Hopfield came first, in 1982 [1], sparsemax [2] later."
    outcome, _ = run("history-aware-rag", "In 1982 [1][7].", k=2)
    assert outcome.answer == "In 1982 [1]."
    outcome, _ = run("closed-book", "The list x[1] [2].")
    assert outcome.answer == "The list x[1] [2].", "nothing was shown that could be cited"


def test_react_asks_for_a_missing_action_and_calls_others_invalid() -> None:
    outcome, prompts = run("react", "I only think.\nAt length.", "Dance[now]", "So.\nAction 2: finish[1982].")
    assert (outcome.answer, outcome.malformed) == ("1982", 2)
    assert prompts[1].endswith("Thought 1: I only think.\nAction 1:")
    assert "Observation 1: Invalid action" in prompts[2]
    outcome, _ = run("react", "T.\nAction 1: Search[sparsemax]", max_steps=1)
    assert (outcome.answer, outcome.passages) == ("", ("sparsemax-2016",))


def test_history_aware_rag_rewrites_only_in_a_conversation() -> None:
    outcome, prompts = run("history-aware-rag", "Who described the Hopfield network?", "John Hopfield", turn=LATER, k=1)
    assert (outcome.answer, outcome.passages) == ("John Hopfield", ("hopfield-1982",))
    assert "<evidence-" in prompts[1]
    assert len(run("history-aware-rag", "The network")[1]) == 1


def test_a_server_that_knows_no_stop_sequence_is_asked_without_and_remembered() -> None:
    def script(body: dict[str, Any]) -> Reply | str:
        return Reply("unsupported: stop", status=400) if "stop" in body else "Done.\nAction 1: Finish[x]"

    with OpenAIServer(script) as server:
        method = make_method("react", Kit(server.model(), KeywordRetriever()))
        assert [asyncio.run(method.ainvoke(TURN)).answer for _ in range(2)] == ["x", "x"]
        assert ["stop" in body for body in server.requests] == [True, False, False]


def test_an_agent_searches_with_its_tool_and_is_verified_where_it_is_asked_for() -> None:
    search = AIMessage("", tool_calls=[{"name": "search_documents", "args": {"query": "sparsemax 2016"}, "id": "1"}])
    draft = "Sparsemax was introduced by Martins and Astudillo in 2016. They were paid by Napoleon."
    outcome, prompts = run("agent", search, draft, turn=LATER)
    assert (outcome.answer, outcome.passages) == (draft, ("sparsemax-2016",))
    assert QUESTION in prompts[0]
    outcome, _ = run("agent-verified", search, draft, corrections("It gives sparse probabilities.", first=2), turn=LATER)
    expected = "Sparsemax was introduced by Martins and Astudillo in 2016 [1]. It gives sparse probabilities [1]."
    assert outcome.answer == expected
