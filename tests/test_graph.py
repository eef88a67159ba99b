"""Turns of the graph with scripted models: number of calls, verdicts on the guesses, and the saved state."""

from __future__ import annotations

import asyncio
import json
import re
import textwrap
import time
from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.documents import Document
from langchain_core.globals import set_llm_cache
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from langgraph_convcoa import ChatModelReasoner, ConvCoAContext, build_graph
from langgraph_convcoa.errors import ConvCoAError, InputError, ModelError
from langgraph_convcoa.storage.thread_export import file_as_values
from tests import fakes
from tests.bounds import run_python
from tests.fakes import WORDS, KeywordRetriever, ScriptedModel, WaitingAction, WebAction, corrections, direct, node, plan, turn

HOPFIELD = "John Hopfield described the Hopfield network in 1982."
SPARSEMAX = "Sparsemax was introduced by Martins and Astudillo in 2016."


def compiled(model: ScriptedModel, saver: InMemorySaver | None = None, **more: Any) -> Any:
    more.setdefault("retriever", KeywordRetriever())
    return build_graph(model=model, **more).compile(checkpointer=saver)


def thread(name: str = "a") -> dict[str, Any]:
    return {"configurable": {"thread_id": name}}


def two_guesses(final: str = "") -> str:
    return plan(
        node("When was the Hopfield network described?", HOPFIELD), node("Who introduced sparsemax?", SPARSEMAX), final=final
    )


def test_kept_guesses_and_a_supported_draft_take_one_call() -> None:
    model = ScriptedModel(replies=[two_guesses(f"{HOPFIELD} {SPARSEMAX}")])
    out = compiled(model).invoke({"question": "When and who?"})
    assert [item["status"] for item in out["chain"]] == ["kept", "kept"]
    assert out["answer"] == f"{HOPFIELD[:-1]} [1]. {SPARSEMAX[:-1]} [2]."
    assert [citation["id"] for citation in out["citations"]] == ["hopfield-1982", "sparsemax-2016"]
    assert out["usage"]["llm_calls"] == len(model.prompts) == 1
    assert out["usage"]["retrievals"] == 3, "the question itself and two sub-questions"
    assert (out["usage"]["input_tokens"], out["usage"]["output_tokens"]) == (10, 5)


def test_an_answer_that_the_evidence_supports_takes_one_call_and_no_further_look_up() -> None:
    retriever = KeywordRetriever()
    answer = "The Hopfield network was described in 1982 [1]. It stores patterns as minima of an energy function."
    model = ScriptedModel(replies=[direct(answer, "When was the Hopfield network described?")])
    out = compiled(model, retriever=retriever).invoke({"question": "When was the Hopfield network described?"})
    assert out["answer"] == f"{answer[:-1]} [1].", "the citation that the model left out is completed"
    assert out["citations"][0]["quote"] == f"{HOPFIELD} … It stores patterns as minima of an energy function."
    assert [(item["status"], item["sub_question"]) for item in out["chain"]] == [
        ("kept", "When was the Hopfield network described?")
    ]
    assert out["usage"]["llm_calls"] == len(model.prompts) == 1
    assert out["usage"]["retrievals"] == len(retriever.asked) == 1
    assert "[1] hopfield-1982.md\nJohn Hopfield described" in model.prompts[0]


def test_only_the_sentences_that_failed_are_asked_about_again() -> None:
    drafted = direct(f"{HOPFIELD[:-1]} [1]. It was described in 1899. Bananas are yellow. It stores patterns.")
    mended = corrections(HOPFIELD, "", first=2)
    model = ScriptedModel(
        replies=[drafted, mended.replace('"", "evidence": [1], "status": "supported"', '"", "status": "none"')]
    )
    out = compiled(model).invoke({"question": "When was the Hopfield network described?"})
    assert out["answer"] == f"{HOPFIELD[:-1]} [1]. {HOPFIELD[:-1]} [1]. It stores patterns [1]."
    assert out["chain"][0]["status"] == "corrected"
    assert "(2) It was described in 1899.\n(3) Bananas are yellow.\nIt stores patterns." in model.prompts[1]
    assert out["usage"]["llm_calls"] == 2


def test_a_sentence_that_only_the_model_confirms_has_a_status_of_its_own() -> None:
    doubted = "Bananas are yellow."
    model = ScriptedModel(replies=[direct(f"{HOPFIELD} {doubted}"), corrections(doubted, first=2)])
    out = compiled(model).invoke({"question": "When was the Hopfield network described?"})
    assert out["answer"].startswith(f"{HOPFIELD[:-1]} [1]. {doubted[:-1]}")
    assert (out["chain"][0]["status"], out["unsupported"]) == ("confirmed", [])


def test_a_sentence_that_stays_unsupported_is_named_and_cites_nothing() -> None:
    model = ScriptedModel(replies=[direct(f"{HOPFIELD} Bananas are yellow."), corrections("Bananas are green.", first=2)])
    out = compiled(model).invoke({"question": "When was the Hopfield network described?"})
    assert out["answer"] == f"{HOPFIELD[:-1]} [1]. Bananas are green."
    assert (out["chain"][0]["status"], out["unsupported"]) == ("corrected", ["Bananas are green."])


def test_a_sentence_that_the_second_call_leaves_out_is_not_in_the_answer() -> None:
    model = ScriptedModel(replies=[direct(f"{HOPFIELD} Bananas are yellow."), "no idea"])
    out = compiled(model).invoke({"question": "When was the Hopfield network described?"})
    assert out["answer"] == f"{HOPFIELD[:-1]} [1]."


def test_a_chain_over_evidence_is_looked_up_and_answered_in_two_calls() -> None:
    retriever = KeywordRetriever()
    asked = plan(node("Who introduced sparsemax?"), final="The network is of 1982.")
    model = ScriptedModel(replies=[asked, corrections(SPARSEMAX, final=f"{HOPFIELD[:-1]} [1]. {SPARSEMAX[:-1]} [2].")])
    out = compiled(model, retriever=retriever).invoke({"question": "When was the Hopfield network described?"})
    assert retriever.asked == ["When was the Hopfield network described?", "Who introduced sparsemax?"]
    assert out["answer"] == f"{HOPFIELD[:-1]} [1]. {SPARSEMAX[:-1]} [2]."
    assert [item["status"] for item in out["chain"]] == ["filled"]
    assert out["usage"]["llm_calls"] == 2


def test_a_sub_question_that_repeats_the_question_is_not_looked_up_again() -> None:
    retriever = KeywordRetriever()
    model = ScriptedModel(replies=[plan(node("who introduced SPARSEMAX")), corrections(SPARSEMAX, final=SPARSEMAX)])
    out = compiled(model, retriever=retriever).invoke({"question": "Who introduced sparsemax?"})
    assert len(retriever.asked) == out["usage"]["retrievals"] == 1
    assert out["chain"][0]["evidence"][0] == "sparsemax-2016"


def test_a_plan_that_cites_evidence_that_is_not_there_loses_the_citation() -> None:
    model = ScriptedModel(replies=[direct(f"{HOPFIELD[:-1]} [1][7][99].")])
    events = list(compiled(model).stream({"question": "When was Hopfield?"}, stream_mode=["custom", "values"]))
    assert events[-1][1]["answer"] == f"{HOPFIELD[:-1]} [1]."
    told = [part for mode, part in events if mode == "custom"][-1]
    assert told == {"type": "answer", "unsupported": [], "removed_citations": 2}


def test_small_talk_is_answered_without_a_chain() -> None:
    out = compiled(ScriptedModel(replies=[direct("Hello! How can I help you?")])).invoke({"question": "hi the network"})
    assert (out["answer"], out["chain"], out["citations"]) == ("Hello! How can I help you?", [], [])
    assert out["usage"]["llm_calls"] == 1


def test_an_answer_that_the_passages_do_not_say_it_is_final() -> None:
    model = ScriptedModel(replies=[direct("The passages do not say who painted it.")])
    out = compiled(model).invoke({"question": "Who painted the network?"})
    assert out["answer"] == "The passages do not say who painted it."
    assert [item["status"] for item in out["chain"]] == ["unsupported"]


def test_the_papers_form_guesses_before_anything_is_looked_up() -> None:
    retriever, model = KeywordRetriever(), ScriptedModel(replies=[two_guesses(f"{HOPFIELD} {SPARSEMAX}")])
    out = compiled(model, retriever=retriever).invoke({"question": "When was it?"}, context={"look_first": False})
    assert "evidence" not in model.prompts[0]
    assert len(retriever.asked) == 2
    assert [item["status"] for item in out["chain"]] == ["kept", "kept"]


def test_the_draft_is_not_taken_when_that_is_switched_off() -> None:
    model = ScriptedModel(replies=[two_guesses(HOPFIELD), corrections(final="Hopfield [1].")])
    out = compiled(model).invoke({"question": "When?"}, context={"allow_draft_answer": False})
    assert out["usage"]["llm_calls"] == 2


def test_all_corrections_take_one_call() -> None:
    wrong = plan(
        node("When was the Hopfield network described?", "The Hopfield network was described in 1899."),
        node("Who introduced sparsemax?"),
        node(
            "Who won the Nobel Prize in Physics 2024?",
            "The Nobel Prize in Physics 2024 went to John Hopfield and Geoffrey Hinton.",
        ),
    )
    model = ScriptedModel(
        replies=[wrong, corrections(HOPFIELD, SPARSEMAX, final=f"{HOPFIELD[:-1]} [1], [9]. {SPARSEMAX[:-1]} [2].")]
    )
    out = compiled(model).invoke({"question": "When and who?"})
    assert [item["status"] for item in out["chain"]] == ["corrected", "filled", "kept"]
    assert [item["answer"] for item in out["chain"]][:2] == [HOPFIELD, SPARSEMAX]
    assert all(item["score"] > 0.3 for item in out["chain"])
    assert out["usage"]["llm_calls"] == 2
    nodes = {"recall", "look", "plan", "knowledge_retrieval", "verify", "correct", "answer", "remember"}
    assert set(out["usage"]["per_node"]) >= nodes
    assert "[9]" not in out["answer"]
    assert len(out["citations"]) == 2


def test_a_correction_call_that_fails_leaves_the_best_evidence() -> None:
    model = ScriptedModel(replies=[plan(node("Who introduced sparsemax?")), RuntimeError("down")])
    out = compiled(model).invoke({"question": "Who?"})
    item = out["chain"][0]
    assert item["status"] == "partial"
    assert item["answer"] == SPARSEMAX
    assert item["reason"].startswith("the best evidence stands in: the model 'ScriptedModel' failed: RuntimeError: down")
    assert out["answer"] == f"“{SPARSEMAX[:-1]}” [1]."


def test_the_nearest_fact_is_partial_and_stands_in_the_answer() -> None:
    reply = corrections("Martins introduced sparsemax", final="").replace('"supported"', '"partial"')
    out = compiled(ScriptedModel(replies=[plan(node("Who introduced sparsemax?")), reply])).invoke({"question": "Who?"})
    assert out["chain"][0]["status"] == "partial"
    assert out["answer"] == "Martins introduced sparsemax [1]."


@pytest.mark.parametrize("look_first", [True, False])
def test_an_empty_chain_without_an_answer_is_looked_up_in_the_words_of_the_planner(look_first: bool) -> None:
    model = ScriptedModel(
        replies=[plan(optimized="sparsemax introduced"), corrections(SPARSEMAX, final="It was in 2016 [1].")]
    )
    retriever = KeywordRetriever()
    out = compiled(model, retriever=retriever).invoke({"question": "sparsemax?"}, context={"look_first": look_first})
    assert retriever.asked == [*["sparsemax?"] * look_first, "sparsemax introduced"]
    assert [(item["sub_question"], item["status"]) for item in out["chain"]] == [("sparsemax introduced", "filled")]
    assert out["answer"] == "It was in 2016 [1]."
    assert out["citations"][0]["id"] == "sparsemax-2016"
    assert out["usage"]["llm_calls"] == 2


RESTATED = "When was sparsemax introduced?"
NOT_SAID = "The passages do not say when it was introduced."


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize(
    ("draft", "second_call", "answer", "status"),
    [
        # A refusal, and a false sentence: what the second search finds is read in the second call.
        (NOT_SAID, True, "It was in 2016 [1].", "filled"),
        ("Sparsemax was introduced by Hopfield in 1890.", True, "It was in 2016 [1].", "corrected"),
        # What the second search finds supports the answer: no second call.
        (SPARSEMAX, False, f"{SPARSEMAX[:-1]} [1].", "kept"),
    ],
)
async def test_an_open_question_is_looked_up_again_in_the_words_of_the_planner(
    draft: str, second_call: bool, answer: str, status: str, streamed: bool, asynchronous: bool
) -> None:
    second = corrections(SPARSEMAX, final="It was in 2016 [3].") if second_call else AssertionError("a second call")
    model, retriever = ScriptedModel(replies=[direct(draft, RESTATED), second]), KeywordRetriever(k=1)
    graph = compiled(model, retriever=retriever)
    out = await turn(graph, "Hopfield?", asynchronous=asynchronous, streamed=streamed)
    assert retriever.asked[0] == "Hopfield?"
    assert {*retriever.asked[1:]} == {RESTATED, *[draft] * (draft != NOT_SAID)}
    assert (out["answer"], out["chain"][0]["status"], out["unsupported"]) == (answer, status, [])
    assert [citation["id"] for citation in out["citations"]] == ["sparsemax-2016"]


BOTH = f"{HOPFIELD[:-1]} [1]. {SPARSEMAX[:-1]} [2]."
GAP = "The passages do not say when sparsemax was introduced."


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (corrections("Both.", final=BOTH.replace("[2]", "[3]")), BOTH),
        # A second call that fails, says nothing, or says what is refused, costs nothing that stood.
        *(
            (reply, f"{HOPFIELD[:-1]} [1]. {GAP}")
            for reply in (RuntimeError("down"), "sorry", corrections("", supported=False))
        ),
        (corrections("Both.", final="Sparsemax was bought by Bob Smith of Leeds."), f"{HOPFIELD[:-1]} [1]. {GAP}"),
    ],
)
async def test_a_gap_of_an_answer_is_looked_up_and_filled(reply: Any, answer: str) -> None:
    draft = f"{HOPFIELD[:-1]} [1]. {GAP}"
    retriever, model = KeywordRetriever(k=1), ScriptedModel(replies=[direct(draft, "Hopfield?"), reply])
    out = await turn(compiled(model, retriever=retriever), "Hopfield?")
    assert (retriever.asked, out["answer"], len(model.prompts)) == (["Hopfield?", GAP], answer, 2)
    assert out["unsupported"] == []
    assert SPARSEMAX in model.prompts[1]
    # An answer of which a part was shown, or that a person approved, stays.
    out = await turn(compiled(ScriptedModel(replies=[direct(draft, "Hopfield?")])), "Hopfield?", streamed=True)
    assert out["answer"] == draft
    graph = compiled(ScriptedModel(replies=[direct(draft, "Hopfield?")]), InMemorySaver())
    graph.invoke({"question": "Hopfield?"}, thread(), context={"approve": ["plan"]})
    assert graph.invoke(Command(resume={"decisions": [{"type": "approve"}]}), thread())["answer"] == draft


def test_the_second_call_reads_what_a_refused_sentence_cites() -> None:
    found = [
        [Document(f"Hopfield, {which} note {n}.", id=f"{which}{n}") for n in range(1, 6)] for which in ("first", "second")
    ]
    model = ScriptedModel(replies=[direct("Hopfield was a baker in Leith [5].", RESTATED), "{}"])
    compiled(model, retriever=RunnableLambda(lambda _question: found[0] if not model.prompts else found[1])).invoke(
        {"question": "Hopfield?"}
    )
    assert "Hopfield, first note 5." in model.prompts[1]


@pytest.mark.parametrize("second", ["sorry", RuntimeError("down")])
def test_what_stood_is_left_if_an_answer_is_not_written_anew(second: Any) -> None:
    model = ScriptedModel(replies=[direct(f"{HOPFIELD[:-1]} [1]. Sparsemax was bought by Bob Smith.", RESTATED), second])
    out = compiled(model, retriever=KeywordRetriever(k=1)).invoke({"question": "Hopfield?"})
    assert (out["answer"], out["unsupported"]) == (f"{HOPFIELD[:-1]} [1].", [])
    assert out["chain"][0]["status"] == "corrected"


@pytest.mark.parametrize(
    ("second", "answer"),
    [
        *((second, f"“{SPARSEMAX[:-1]}” [1].") for second in (RuntimeError("down"), "", "{}")),
        (corrections("", supported=False), f"Nothing was found about “{RESTATED}”."),
    ],
)
@pytest.mark.parametrize("draft", ["Sparsemax was introduced in 1999 [1].", "No."])
def test_a_check_that_fails_leaves_a_quote_and_a_refusal_cites_nothing(draft: str, second: Any, answer: str) -> None:
    out = compiled(ScriptedModel(replies=[direct(draft, RESTATED), second])).invoke({"question": RESTATED})
    assert (out["answer"], out["unsupported"], out["usage"]["llm_calls"]) == (answer, [], 2)


@pytest.mark.parametrize("draft", ["No problem!", f"No. {HOPFIELD[:-1]} [1].", f"{HOPFIELD[:-1]} [1]. Don't hesitate to ask."])
def test_a_sentence_with_a_negation_is_no_gap(draft: str) -> None:
    model, retriever = ScriptedModel(replies=[direct(draft, RESTATED)]), KeywordRetriever(k=1)
    out = compiled(model, retriever=retriever).invoke({"question": "Hopfield?"})
    assert (out["answer"], retriever.asked, out["unsupported"]) == (draft, ["Hopfield?"], [])


@pytest.mark.parametrize(
    ("restated", "asked"), [("What is the Hopfield network?", 1), ("Who described the Hopfield network?", 2)]
)
def test_a_refusal_costs_no_second_call_if_a_search_in_other_words_finds_nothing_new(restated: str, asked: int) -> None:
    model, retriever = ScriptedModel(replies=[direct(NOT_SAID, restated)]), KeywordRetriever(k=1)
    out = compiled(model, retriever=retriever).invoke({"question": "What is the Hopfield network?"})
    assert (len(retriever.asked), out["answer"], out["usage"]["llm_calls"]) == (asked, NOT_SAID, 1)


def test_a_final_answer_that_is_refused_is_shown_and_marked_and_a_word_without_meaning_is_not() -> None:
    whole = "Sparsemax: it is thirty-four years younger than the Hopfield network of 1982."
    for final, answer, unsupported in ((whole, whole, [whole]), ("Null", f"{SPARSEMAX[:-1]} [1].", [])):
        reply = corrections(SPARSEMAX, final=final)
        out = compiled(ScriptedModel(replies=[plan(node("When was sparsemax introduced?")), reply])).invoke(
            {"question": "Which?"}
        )
        assert (out["answer"], out["unsupported"]) == (answer, unsupported)


def test_no_evidence_at_all_is_said_without_asking_a_model() -> None:
    out = compiled(ScriptedModel(replies=[plan(node("zzz?", "A guess."))])).invoke({"question": "zzz?"})
    assert out["chain"][0]["status"] == "unsupported"
    assert out["answer"] == "Nothing was found about “zzz?”."
    assert out["citations"] == []


@pytest.mark.parametrize("reply", ["", corrections(), "{}"])
async def test_an_empty_final_answer_is_replaced_by_the_chain(reply: str) -> None:
    out = await turn(compiled(ScriptedModel(replies=[two_guesses(), reply])), "When?", streamed=True)
    assert "in 1982 [1]." in out["answer"]


def test_messages_in_messages_out() -> None:
    model = ScriptedModel(replies=[two_guesses(HOPFIELD)])
    question = HumanMessage("When?", id="q")
    out = compiled(model).invoke({"messages": [HumanMessage("Hi", id="h"), AIMessage("Hello.", id="i"), question]})
    assert [message.id for message in out["messages"][:3]] == ["h", "i", "q"]
    assert out["messages"][-1].text == out["answer"]
    assert len(out["messages"]) == 4
    assert "Hello." in model.prompts[0], "the history of the messages is in the prompt of the normal stage"


def test_the_second_round_plans_with_the_knowledge_set() -> None:
    model = ScriptedModel(replies=[two_guesses(f"{HOPFIELD}"), plan(node("When was it?", HOPFIELD), final=HOPFIELD)])
    graph = compiled(model, InMemorySaver())
    graph.invoke({"question": "When?"}, thread())
    out = graph.invoke({"question": "When was it?"}, thread())
    assert "User: When?" not in model.prompts[0]
    assert "User: When?\n" in model.prompts[1]
    assert f"Assistant: {HOPFIELD}\n" in model.prompts[1]
    rounds = out["knowledge_set"]["Contextual knowledge set"]
    assert [entry["round"] for entry in rounds] == [1, 2]
    assert rounds[0]["sub_questions"]["sub1"] == "When was the Hopfield network described?"
    assert rounds[0]["information_summaries"]["infor1"].startswith(HOPFIELD)
    assert rounds[1]["convcoa"]["chain"][0]["status"] == "kept"
    assert len(out["chain"]) == 1, "a turn's chain does not accumulate"
    assert out["usage"]["llm_calls"] == 1, "nor does its usage"
    assert [type(message).__name__ for message in out["messages"]] == ["HumanMessage", "AIMessage"] * 2


async def test_interleaved_async_threads_do_not_mix() -> None:
    model = ScriptedModel(by_prompt=lambda prompt: two_guesses(HOPFIELD))
    graph = compiled(model, InMemorySaver())
    for number in range(2):
        await asyncio.gather(*(graph.ainvoke({"question": f"{name}{number}?"}, thread(name)) for name in "abcdef"))
    for name in "abcdef":
        out = await graph.ainvoke({"question": f"{name}2?"}, thread(name))
        asked = [entry["original_question"] for entry in out["knowledge_set"]["Contextual knowledge set"]]
        assert asked == [f"{name}{number}?" for number in range(3)]
    assert all(len({*re.findall(r"\b([a-f])\d\?", prompt)}) == 1 for prompt in model.prompts)


@pytest.mark.parametrize("draft", [True, False])
@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_message_stream_is_the_answer_and_nothing_else(draft: bool, asynchronous: bool) -> None:
    answer = (
        f"{SPARSEMAX[:-1]} [2, 1] [8]. It stores patterns as minima [1].\\n\\n- The Nobel Prize went to John Hopfield [1]. "
    )
    replies = (
        [two_guesses(f"{HOPFIELD} {SPARSEMAX}")] if draft else [two_guesses(), corrections(final=answer.replace("\\n", "\n"))]
    )
    graph = compiled(ScriptedModel(replies=replies), InMemorySaver())
    arguments: dict[str, Any] = {"config": thread(), "stream_mode": ["messages", "custom", "values"]}
    if asynchronous:

        async def collect() -> list[Any]:
            return [part async for part in graph.astream({"question": "When?"}, **arguments)]

        parts = asyncio.run(collect())
    else:
        parts = list(graph.stream({"question": "When?"}, **arguments))
    shown = [part[0] for mode, part in parts if mode == "messages"]
    final = [part for mode, part in parts if mode == "values"][-1]
    assert "".join(message.text for message in shown) == final["answer"]
    assert all(isinstance(message, AIMessage | AIMessageChunk) for message in shown)
    assert {message.id for message in shown} == {final["messages"][-1].id}
    if not draft:
        assert len([message for message in shown if message.text]) == 3, "sentence by sentence"
        assert final["answer"].startswith(f"{SPARSEMAX[:-1]} [1]. It stores patterns as minima [2].\n\n- The Nobel Prize")
    events = [part for mode, part in parts if mode == "custom"]
    assert [event["type"] for event in events[:2]] == ["look", "plan"]
    last = {event["index"]: event["status"] for event in events if event["type"] == "sub_question"}
    assert last == {0: "kept", 1: "kept"}
    assert final["usage"]["llm_calls"] == len(replies)
    assert final["usage"]["input_tokens"] == 10 * len(replies)


@pytest.mark.parametrize("mode", ["values", "updates", "messages", "custom", "debug", "tasks", "checkpoints"])
def test_every_stream_mode_runs(mode: str) -> None:
    graph = compiled(ScriptedModel(replies=[two_guesses(HOPFIELD)]), InMemorySaver())
    assert list(graph.stream({"question": "When?"}, thread(), stream_mode=mode))


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_one_failing_action_of_four_leaves_three_answers(asynchronous: bool) -> None:
    names = ("one", "two", "three", "four")
    actions = [WaitingAction(name, error=ValueError("api_key=sk-123 broke") if name == "two" else None) for name in names]
    chain = plan(*(node(f"question {name}?", f"Fact {name}.", action=name) for name in names))
    graph = compiled(
        ScriptedModel(replies=[chain, corrections(final="Fact one [1]. Fact three [2]. Fact four [3].")]),
        retriever=None,
        actions=actions,
        verifier=WORDS,
    )
    out = await turn(graph, "All?", asynchronous=asynchronous)
    assert [item["status"] for item in out["chain"]] == ["kept", "failed", "kept", "kept"]
    assert out["chain"][1]["reason"].startswith("the action two failed: ValueError")
    assert "sk-123" not in str(out)
    assert len(out["citations"]) == 3


def test_an_action_over_its_time_fails_and_is_not_tried_again() -> None:
    slow = WaitingAction("slow", seconds=5)
    graph = compiled(ScriptedModel(replies=[plan(node("q?", "g", action="slow")), "No."]), retriever=None, actions=[slow])
    out = graph.invoke({"question": "q?"}, context=ConvCoAContext(action_timeout=0.2))
    assert out["chain"][0]["status"] == "failed"
    assert "0.2 s" in out["chain"][0]["reason"]
    assert out["usage"]["seconds"] >= 0.2, "its time counts"
    assert len(slow.requests) == 1


def test_a_lost_connection_is_tried_once_more() -> None:
    flaky = WaitingAction("flaky", error=ConnectionError("lost"))
    graph = compiled(ScriptedModel(replies=[plan(node("q?", "g", action="flaky")), "No."]), retriever=None, actions=[flaky])
    assert graph.invoke({"question": "q?"})["chain"][0]["status"] == "failed"
    assert len(flaky.requests) == 2


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_actions_run_side_by_side_within_the_bound(asynchronous: bool) -> None:
    action = WaitingAction("wait", seconds=0.05)
    chain = plan(*(node(f"q{n}?", "Fact wait.", action="wait") for n in range(6)))
    for bound in (2, 6):
        # No look-up ends before `bound` look-ups have run at once.
        action.most_running, action.least_running = 0, bound
        graph = compiled(ScriptedModel(replies=[chain, "a"]), retriever=None, actions=[action])
        await turn(graph, "q?", asynchronous=asynchronous, context=ConvCoAContext(max_concurrency=bound))
        assert action.most_running == bound


def test_what_failed_goes_back_once_to_an_action_that_looks_deeper() -> None:
    web = WebAction("web", SPARSEMAX)
    chain = plan(node("Who introduced sparsemax?", SPARSEMAX, action="web"), final=SPARSEMAX)
    out = compiled(ScriptedModel(replies=[chain]), retriever=None, actions=[web]).invoke({"question": "Who?"})
    assert [request.depth for request in web.requests] == [1, 2]
    assert out["chain"][0]["status"] == "kept"
    assert out["chain"][0]["evidence"] == ["depth-2", "depth-1"]
    assert out["usage"]["retrievals"] == 2
    assert out["usage"]["llm_calls"] == 1


def test_a_failed_turn_can_be_resumed_without_repeating_its_plan() -> None:
    model = ScriptedModel(replies=[two_guesses(), RuntimeError("down"), corrections(final=f"{HOPFIELD[:-1]} [1].")])
    graph = compiled(model, InMemorySaver())
    with pytest.raises(ModelError):
        graph.invoke({"question": "When?"}, thread())
    out = graph.invoke(None, thread())
    assert out["answer"] == f"{HOPFIELD[:-1]} [1]."
    assert len(model.prompts) == 3, "plan, the failed answer, the answer"


def test_the_default_checkpoint_mode_neither_warns_nor_loses_anything() -> None:
    script = """
        import warnings
        warnings.simplefilter("error")
        from tests.test_graph import *
        told = corrections(final="It was described in 1982 [1].")
        graph = compiled(ScriptedModel(replies=[two_guesses(), RuntimeError("down"), told]), InMemorySaver())
        try:
            graph.invoke({"question": "When?"}, thread())
        except ModelError:
            print(graph.invoke(None, thread())["answer"])
    """
    # LangGraph reads the variable once, when it is imported.
    done = run_python("-c", textwrap.dedent(script), LANGGRAPH_STRICT_MSGPACK="false")
    assert done.stdout == "It was described in 1982 [1].\n", done.stderr
    assert "unregistered type" not in done.stderr


def test_a_failed_call_counts_in_its_own_thread_only() -> None:
    model = ScriptedModel(replies=[RuntimeError("down"), direct("In 1982 [1]."), direct("In 1982 [1].")])
    graph, question = compiled(model, InMemorySaver()), {"messages": [HumanMessage("When?", id="the same")]}
    with pytest.raises(ModelError):
        graph.invoke(question, thread("a"))
    calls = [graph.invoke(inputs, thread(name))["usage"]["llm_calls"] for name, inputs in (("b", question), ("a", None))]
    assert calls == [1, 2]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("stop", ["recall", "look", "plan", "knowledge_retrieval", "verify", "correct", "answer"])
async def test_a_turn_can_be_edited_and_resumed_after_every_node(stop: str, asynchronous: bool) -> None:
    wrong = plan(node("When was the Hopfield network described?", "It was described in 1899."))
    model = ScriptedModel(replies=[wrong, corrections(HOPFIELD, final="It was described in 1982 [1].")])
    graph = compiled(model, InMemorySaver())
    await turn(graph, "When?", thread(), asynchronous=asynchronous, interrupt_after=[stop])
    await graph.aupdate_state(thread(), {"asked": "When was it?"})
    out = await turn(graph, None, thread(), asynchronous=asynchronous)
    assert out["answer"] == "It was described in 1982 [1]."
    assert len(model.prompts) == 2
    assert out["knowledge_set"]["Contextual knowledge set"][0]["original_question"] == "When was it?"


def test_an_edited_plan_is_what_is_looked_up_also_in_a_fork_of_an_earlier_state() -> None:
    replies = [two_guesses(HOPFIELD), corrections(final=f"{HOPFIELD[:-1]} [1]."), corrections(final=f"{SPARSEMAX[:-1]} [1].")]
    model = ScriptedModel(replies=replies)
    graph = compiled(model, InMemorySaver())
    graph.invoke({"question": "When?"}, thread(), interrupt_after=["plan"])
    planned = graph.get_state(thread())
    made = planned.values["plan"]
    graph.update_state(thread(), {"plan": {**made, "draft_answer": "", "nodes": made["nodes"][:1]}})
    assert [item["answer"] for item in graph.invoke(None, thread())["chain"]] == [HOPFIELD]
    forked = graph.update_state(planned.config, {"plan": {**made, "draft_answer": "", "nodes": made["nodes"][1:]}})
    assert [item["answer"] for item in graph.invoke(None, forked)["chain"]] == [SPARSEMAX]


@pytest.mark.parametrize("as_messages", [True, False])
def test_a_new_question_discards_a_failed_turn(as_messages: bool) -> None:
    def ask(text: str) -> dict[str, Any]:
        return {"messages": [HumanMessage(text)]} if as_messages else {"question": text}

    model = ScriptedModel(replies=[two_guesses(HOPFIELD), two_guesses(), RuntimeError("down"), two_guesses(HOPFIELD)])
    graph = compiled(model, InMemorySaver())
    before = graph.invoke(ask("First?"), thread())
    with pytest.raises(ModelError):
        graph.invoke(ask("Abandoned?"), thread())
    state = graph.get_state(thread()).values
    assert state["knowledge_set"] == before["knowledge_set"]
    assert state["answer"] == before["answer"]
    out = graph.invoke(ask("Second?"), thread())
    assert "Abandoned?" not in model.prompts[-1]
    assert "Abandoned?" not in str(out)
    assert [message.text for message in out["messages"] if isinstance(message, HumanMessage)] == ["First?", "Second?"]
    assert len(out["knowledge_set"]["Contextual knowledge set"]) == 2
    assert len(out["chain"]) == 2


def test_a_message_turn_after_a_question_turn_asks_the_message() -> None:
    model = ScriptedModel(by_prompt=lambda prompt: two_guesses(HOPFIELD))
    graph = compiled(model, InMemorySaver())
    graph.invoke({"question": "First?"}, thread())
    out = graph.invoke({"messages": [HumanMessage("Second?")]}, thread())
    assert [r["original_question"] for r in out["knowledge_set"]["Contextual knowledge set"]] == ["First?", "Second?"]


@pytest.mark.parametrize(
    "question",
    [{"question": ""}, {"question": " \n"}, {"question": "x" * 100_000}, {}, {"messages": []}, {"messages": [AIMessage("a")]}],
)
def test_a_question_that_cannot_be_asked(question: dict[str, Any]) -> None:
    graph = compiled(ScriptedModel(replies=[]))
    with pytest.raises(InputError) as caught:
        graph.invoke(question or {"question": ""})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["🦜🔗?", "何时?", "מתי זה היה?", "a\u0000b?", "[1] [2]?", "$question {x}"])
def test_any_script_goes_through(text: str) -> None:
    out = compiled(ScriptedModel(replies=[plan(node(text, text)), text])).invoke({"question": text})
    assert out["chain"][0]["sub_question"]


def test_a_model_named_at_run_time_whose_key_is_missing_is_an_error() -> None:
    graph = compiled(ScriptedModel(replies=[]))
    with pytest.raises(ModelError, match="OPENAI_API_KEY"):
        graph.invoke({"question": "q?"}, context={"model": "openai:gpt-4.1-mini"})


async def test_without_a_model_the_answer_is_extracted() -> None:
    graph = build_graph(retriever=KeywordRetriever()).compile()
    out = await turn(graph, "When was the Hopfield network described?", streamed=True)
    assert "1982" in out["answer"]
    assert out["citations"][0]["id"] == "hopfield-1982"
    assert out["usage"]["llm_calls"] == 0


def test_seconds_count_parallel_branches_once() -> None:
    action = WaitingAction("wait", seconds=0.2)
    chain = plan(*(node(f"q{n}?", "Fact wait.", action="wait") for n in range(4)))
    graph = compiled(ScriptedModel(replies=[chain, "a"]), retriever=None, actions=[action])
    start = time.perf_counter()
    usage = graph.invoke({"question": "q?"})["usage"]
    assert 0.2 <= usage["seconds"] <= time.perf_counter() - start
    assert usage["per_node"]["wait"]["seconds"] >= 0.8


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_two_actions_may_use_one_id_for_different_texts(asynchronous: bool) -> None:
    class Fixed(WaitingAction):
        def __init__(self, name: str, text: str) -> None:
            super().__init__(name)
            self.text = text

        async def retrieve(self, request: Any) -> list[Document]:
            return [Document(self.text, id="1", metadata={"source": self.name})]

    chain = plan(
        node("When was the Hopfield network described?", HOPFIELD, action="one"),
        node("Who introduced sparsemax?", SPARSEMAX, action="two"),
        final=f"{HOPFIELD} {SPARSEMAX}",
    )
    actions = [Fixed("one", HOPFIELD), Fixed("two", SPARSEMAX)]
    graph = compiled(ScriptedModel(replies=[chain]), retriever=None, actions=actions)
    out = await turn(graph, "q?", asynchronous=asynchronous)
    assert [citation["quote"] for citation in out["citations"]] == [HOPFIELD, SPARSEMAX]
    assert [citation["source"] for citation in out["citations"]] == ["one", "two"]


def test_a_cache_of_model_calls_does_not_confuse_citations() -> None:
    def reply(prompt: str) -> str:
        return two_guesses() if "Break a question" in prompt else corrections(final=f"{SPARSEMAX[:-1]} [2].")

    set_llm_cache(InMemoryCache())
    try:
        graph = compiled(ScriptedModel(by_prompt=reply))
        cited = [graph.invoke({"question": "q?"})["citations"][0]["id"] for _ in range(2)]
    finally:
        set_llm_cache(None)
    assert cited[0] == cited[1]


def test_history_given_as_messages_is_remembered_in_later_turns() -> None:
    model = ScriptedModel(by_prompt=lambda prompt: two_guesses(HOPFIELD))
    graph = compiled(model, InMemorySaver())
    seeded = [HumanMessage("What is ZEBRA?"), AIMessage("A network."), HumanMessage("When?")]
    graph.invoke({"messages": seeded}, thread())
    out = graph.invoke({"question": "And who?"}, thread())
    assert "ZEBRA" in model.prompts[1]
    assert out["knowledge_set"]["Contextual knowledge set"][0]["original_question"] == "What is ZEBRA?"


def test_a_message_that_cannot_be_asked_does_not_block_its_thread() -> None:
    graph = compiled(ScriptedModel(replies=[two_guesses(HOPFIELD)]), InMemorySaver())
    with pytest.raises(InputError):
        graph.invoke({"messages": [HumanMessage("x" * 100_000)]}, thread())
    out = graph.invoke({"messages": [HumanMessage("When?")]}, thread())
    assert [message.text for message in out["messages"] if isinstance(message, HumanMessage)] == ["When?"]


def test_metadata_of_any_kind_survives_a_checkpoint() -> None:
    class Odd(WaitingAction):
        async def retrieve(self, request: Any) -> list[Document]:
            return [Document(HOPFIELD, id="a", metadata={"thing": object(), "deep": [{"set": {1}}], "big": 2**70, "ok": 1.5})]

    model = ScriptedModel(replies=[plan(node("When was it?", HOPFIELD, action="odd"), final=HOPFIELD)])
    graph = compiled(model, InMemorySaver(), retriever=None, actions=[Odd("odd")])
    assert graph.invoke({"question": "q?"}, thread())["answer"]


def test_cited_sentences_that_nothing_bears_out_are_named() -> None:
    model = ScriptedModel(replies=[two_guesses(), corrections(final=f"The moon is cheese [1]. {HOPFIELD[:-1]} [1].")])
    parts = list(compiled(model).stream({"question": "q?"}, stream_mode=["custom", "values"]))
    out = parts[-1][1]
    told = [part for mode, part in parts if mode == "custom"][-1]
    assert told == {"type": "answer", "unsupported": ["The moon is cheese."], "removed_citations": 0}
    assert out["answer"] == f"The moon is cheese. {HOPFIELD[:-1]} [1].", "and cite nothing"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": ScriptedModel()}, "retriever"),
        ({"actions": [WaitingAction("a"), WaitingAction("a")]}, "two actions"),
        ({"actions": [WaitingAction("plan")]}, "node of the graph"),
        ({"reasoner": ChatModelReasoner(ScriptedModel()), "model": "x", "retriever": KeywordRetriever()}, "not both"),
        ({"model": "nonsense-model", "retriever": KeywordRetriever()}, "unknown model"),
        ({"retriever": "docs"}, "must be a LangChain retriever"),
        ({"actions": WaitingAction("a")}, "list of actions"),
        ({"reasoner": 3, "retriever": KeywordRetriever()}, "plan and correct"),
        ({"context": {"k": 0}, "retriever": KeywordRetriever()}, "'k'"),
        ({"base_url": "http://localhost/v1", "retriever": KeywordRetriever()}, "base_url needs a model"),
        ({"model": 3, "retriever": KeywordRetriever()}, "a model is a name or a chat model"),
    ],
)
def test_what_no_graph_is_made_of_is_told_when_it_is_built(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConvCoAError, match=message):
        build_graph(**arguments)


def test_a_look_up_behind_a_refusal_is_made_though_answers_are_streamed() -> None:
    refusal, chain = "The passages do not say who introduced sparsemax. ", [node("Who introduced sparsemax?")]
    first = json.dumps({"final_answer": refusal, "chain": chain, "optimized_question": "Who?"})
    model = ScriptedModel(replies=[first, corrections(final=f"{HOPFIELD[:-1]} [1].")])
    shown = [part for part, _ in compiled(model).stream({"question": "Who described it?"}, stream_mode="messages")]
    assert len(model.prompts) == 2
    assert "".join(part.text for part in shown).startswith(HOPFIELD[:-1])


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_vague_question_is_asked_back_and_the_next_message_answers_it(asynchronous: bool, streamed: bool) -> None:
    retriever, final = KeywordRetriever(), direct(f"{HOPFIELD[:-1]} [1].")
    model = ScriptedModel(replies=[fakes.asking(), RuntimeError("down"), fakes.asking(), final])
    graph = compiled(model, InMemorySaver(), retriever=retriever)
    out = await turn(graph, fakes.VAGUE, thread(), asynchronous=asynchronous, streamed=streamed)
    assert out["clarification"] == out["answer"] == out["messages"][-1].text == fakes.BACK
    assert (out["citations"], out["unsupported"], [item["status"] for item in out["chain"]]) == ([], [], ["asked"])
    assert (len(out["chain"][0]["evidence"]), out["usage"]["llm_calls"]) == (3, 1)
    (kept,) = out["knowledge_set"]["Contextual knowledge set"]
    assert (kept["sub_questions"], graph.get_state(thread()).values["evidence_memory"]) == ({}, [])
    with pytest.raises(ModelError):
        await turn(graph, "The network.", thread(), asynchronous=asynchronous, streamed=streamed)
    await turn(graph, fakes.VAGUE, thread("another user"))
    out = await turn(graph, None, thread(), asynchronous=asynchronous, streamed=streamed)
    assert (out["answer"], out["clarification"]) == (f"{HOPFIELD[:-1]} [1].", "")
    whole = f"{fakes.VAGUE}\n{fakes.BACK}\nThe network."
    assert retriever.asked == [fakes.VAGUE, whole, fakes.VAGUE]
    assert model.prompts[-1].endswith(f"Question: {whole}\n")
    assert ["clarification" in prompt for prompt in model.prompts] == [True, False, True, False], "never twice in a row"
    (entry,) = out["knowledge_set"]["Contextual knowledge set"]
    assert (entry["original_question"], entry["answer"]) == (whole, out["answer"])
    assert [message.text for message in out["messages"]] == [fakes.VAGUE, fakes.BACK, "The network.", out["answer"]]


@pytest.mark.parametrize(
    ("reply", "context"),
    [
        (fakes.asking(final_answer=f"{HOPFIELD[:-1]} [1]."), {}),
        (fakes.asking(chain=[node("Who introduced sparsemax?")]), {}),
        (fakes.asking(), {"ask_back": False}),
        (fakes.asking("none"), {}),
        (fakes.asking(), {"look_first": False}),
        (fakes.asking(), {"k": 1}),
    ],
)
def test_nothing_is_asked_back_without_evidence_that_differs_or_beside_an_answer(reply: str, context: Any) -> None:
    model = ScriptedModel(replies=[reply, corrections(final=f"{HOPFIELD[:-1]} [1].")])
    out = compiled(model).invoke({"question": fakes.VAGUE}, context=context)
    assert (out["clarification"], fakes.BACK in out["answer"]) == ("", False)


def test_an_answer_that_only_asks_is_no_question_back_in_its_thread() -> None:
    model = ScriptedModel(replies=[direct("Which topic?")] * 2)
    graph = compiled(model, InMemorySaver())
    for question in ("Hi", "The Nobel Prize."):
        out = graph.invoke({"question": question}, thread())
    rounds = out["knowledge_set"]["Contextual knowledge set"]
    assert [entry["original_question"] for entry in rounds] == ["Hi", "The Nobel Prize."]


def test_an_imported_knowledge_set_still_asks_back() -> None:
    out = compiled(ScriptedModel(replies=[fakes.asking()])).invoke({"question": fakes.VAGUE})
    model = ScriptedModel(replies=[direct(f"{HOPFIELD[:-1]} [1].")])
    graph, imported = compiled(model, InMemorySaver()), thread()
    graph.update_state(imported, file_as_values(out["knowledge_set"]))
    graph.invoke({"question": "The network."}, imported)
    assert f"Question: {fakes.VAGUE}\n{fakes.BACK}\nThe network.\n" in model.prompts[0]


def test_a_question_back_in_another_language_is_answered_over_messages_alone() -> None:
    final = direct(f"{HOPFIELD[:-1]} [1].")
    model = ScriptedModel(replies=[fakes.asking("Meinst du das Netz [1] oder Sparsemax [2]?"), final])
    out = compiled(model).invoke({"messages": [HumanMessage(fakes.VAGUE)]}, context={"language": "German"})
    assert out["clarification"] == "Meinst du das Netz oder Sparsemax?"
    assert "in German" in model.prompts[0].split("clarification")[1]
    # As most clients send it.
    plain = [{"role": message.type, "content": message.text} for message in (*out["messages"], HumanMessage("Das Netz."))]
    compiled(model).invoke({"messages": plain})
    assert f"Question: {fakes.VAGUE}\n{out['clarification']}\nDas Netz.\n" in model.prompts[1]


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_question_back_beside_a_refusal_is_asked_and_found_again_in_its_thread(streamed: bool) -> None:
    back, final = "Which one? Name it.", direct(f"{HOPFIELD[:-1]} [1].")
    model = ScriptedModel(replies=[fakes.asking(back, final_answer="The passages do not say which one is meant."), final])
    graph = compiled(model, InMemorySaver())
    assert (await turn(graph, fakes.VAGUE, thread(), streamed=streamed))["clarification"] == back
    again = [("user", fakes.VAGUE), ("assistant", back), ("user", "The network.")]
    await graph.ainvoke({"messages": again}, thread())
    assert f"Question: {fakes.VAGUE}\n{back}\nThe network.\n" in model.prompts[1]
