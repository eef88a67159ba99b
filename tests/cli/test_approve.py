"""Approval at the terminal: what is shown, and what is made of the keys."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from langgraph_convcoa.cli.console import TurnView, ask_decisions
from langgraph_convcoa.cli.options import ConversationOptions
from langgraph_convcoa.cli.session import Session
from langgraph_convcoa.context import ConvCoAContext
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.graph import build_graph
from langgraph_convcoa.nodes.approve import Review, Text, arguments, chain_type, review_request
from tests.cli.test_console import shown, text_console
from tests.fakes import KeywordRetriever, ScriptedModel, decided_by, node, plan

SQL = Review(
    "data_analysis",
    arguments(
        sub_question=(Text, "How many?"), guess_answer=(Text, ""), action_input=(Text, "SELECT count(*)\x1b[31m FROM t")
    ),
    "Look up “How many?”.",
)
STEP = {"action": "data_analysis", "sub_question": "How many?", "guess_answer": "", "action_input": ""}
PLAN = Review(
    "plan",
    arguments(optimized_question=(Text, "How many are there?"), chain=(chain_type(["data_analysis"], 6), [STEP])),
    "The plan.",
)

Keys = Callable[..., None]


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Keys:
    def press(*lines: str) -> None:
        left: Iterator[str] = iter(lines)

        def read(_: str = "") -> str:
            line = next(left, None)
            if line is None:
                raise EOFError
            return line

        monkeypatch.setattr("builtins.input", read)

    return press


def decided(*reviews: Review) -> tuple[list[Any], str]:
    console = text_console()
    response = ask_decisions(review_request(reviews), console)
    return decided_by(response, reviews), shown(console)


def test_what_is_to_be_approved_is_shown_without_control_characters(keys: Keys) -> None:
    keys("a")
    (decision,), text = decided(SQL)
    assert decision.type == "approve"
    assert "sub_question: How many?" in text
    assert "SELECT count(*)" in text
    assert "\x1b" not in text
    assert "guess_answer" not in text, "empty"


def test_an_edit_keeps_what_is_left_empty(keys: Keys) -> None:
    keys("edit", "", "", "SELECT 1")
    (decision,), _ = decided(SQL)
    assert decision.args == {"sub_question": "How many?", "guess_answer": "", "action_input": "SELECT 1"}


def test_a_rejection_takes_a_reason(keys: Keys) -> None:
    keys("what?", "r", "Too dear.", "n", "")
    (first, second), text = decided(SQL, SQL)
    assert (first.type, first.message) == ("reject", "Too dear.")
    assert (second.type, second.message) == ("reject", "")
    assert text.count("[a]pprove") == 3, "asked again after what is no decision"


def test_a_plan_shows_its_steps(keys: Keys) -> None:
    keys("y")
    (decision,), text = decided(PLAN)
    assert decision.args == PLAN.args
    assert "1. data_analysis: How many?" in text


def test_an_end_of_input_decides_nothing(keys: Keys) -> None:
    keys()
    with pytest.raises(InputError, match="ask the same question again"):
        decided(SQL)


SPARSEMAX = "Sparsemax was introduced by Martins and Astudillo in 2016."
ASKED = "Who introduced sparsemax?"


def session(*names: str, store: Path | None = None, replies: int = 1) -> Session:
    model = ScriptedModel(replies=[plan(node(ASKED, SPARSEMAX), final=SPARSEMAX)] * replies)
    context = ConvCoAContext(approve=list(names))
    return Session(build_graph(model=model, retriever=KeywordRetriever()), context, "a", store)


def test_a_turn_at_the_terminal_asks_and_is_answered_once(keys: Keys) -> None:
    keys("a", "e", "It was Martins [1].")
    out, err = text_console(), text_console()
    with session("knowledge_retrieval", "answer") as conversation, TurnView(out, err) as view:
        view.finish(conversation.ask(ASKED, view))
    assert shown(out).count("Martins [1].") == 1
    assert shown(err).count("waits for approval") == 2


def test_a_turn_that_nobody_can_decide_about_waits_in_the_store(keys: Keys, tmp_path: Path) -> None:
    store = tmp_path / "chats.sqlite"
    with session("knowledge_retrieval", store=store) as conversation, pytest.raises(InputError, match="without --json"):
        conversation.ask(ASKED)
    view = TurnView(text_console(), text_console())
    keys()
    with session(store=store, replies=0) as conversation:
        assert conversation.unfinished() == ASKED
        with pytest.raises(InputError, match="nothing was decided"):
            conversation.ask(None, view)
        keys("a")
        assert conversation.ask(None, view)["answer"] == f"{SPARSEMAX[:-1]} [1]."
        assert len(conversation.rounds()) == 1


def test_approval_needs_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ConversationOptions(docs="demo", approve=["plan"])
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(InputError, match="asks at the terminal"):
        options.check("ask")


def test_a_view_that_showed_text_before_it_asks_starts_a_new_line(keys: Keys) -> None:
    keys("a")
    view = TurnView(out := text_console(), text_console())
    view.token("Shown")
    request: Mapping[str, Any] = review_request([SQL])  # type: ignore[assignment]
    assert view.decide(request) == {"decisions": [{"type": "approve"}]}
    view.finish({"answer": "Kept."})
    assert shown(out) == "Shown\nKept.\n"
