"""A person in the turn: what is asked, what each decision does, and that a wrong one costs nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from langchain.agents.middleware.human_in_the_loop import HITLRequest
from langchain_core.documents import Document
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command
from pydantic import TypeAdapter

from langgraph_convcoa import ConvCoAContext, build_graph
from langgraph_convcoa.actions.base import ActionInputError
from langgraph_convcoa.actions.tables.action import DataAnalysis
from langgraph_convcoa.errors import InputError
from tests import fakes
from tests.fakes import KeywordRetriever, ScriptedModel, WaitingAction, WebAction, corrections, direct, node, plan, turn

HOPFIELD = "John Hopfield described the Hopfield network in 1982."
SPARSEMAX = "Sparsemax was introduced by Martins and Astudillo in 2016."
ASKED = {"question": "When and who?"}
THREAD: dict[str, Any] = {"configurable": {"thread_id": "a"}}
YES = {"type": "approve"}
NO = {"type": "reject", "message": "not today"}


def two(final: str = f"{HOPFIELD} {SPARSEMAX}", action: str = "knowledge_retrieval") -> str:
    first = node("When was the Hopfield network described?", HOPFIELD, action=action)
    return plan(first, node("Who introduced sparsemax?", SPARSEMAX, action=action), final=final)


def compiled(*replies: Any, actions: list[Any] | None = None, **more: Any) -> tuple[Any, ScriptedModel]:
    model = ScriptedModel(replies=list(replies))
    more.setdefault("retriever", KeywordRetriever())
    return build_graph(model=model, actions=actions or [], **more).compile(checkpointer=InMemorySaver()), model


def approving(*names: str, **more: Any) -> dict[str, Any]:
    return {"approve": list(names), **more}


def asked(out: dict[str, Any]) -> list[dict[str, Any]]:
    (interrupt,) = out["__interrupt__"]
    TypeAdapter(HITLRequest).validate_python(interrupt.value, strict=True, extra="forbid")
    assert json.loads(json.dumps(interrupt.value)) == interrupt.value
    return list(interrupt.value["action_requests"])


def decide(graph: Any, *decisions: Any) -> dict[str, Any]:
    out: dict[str, Any] = graph.invoke(Command(resume={"decisions": list(decisions)}), THREAD)
    return out


def edit(name: str, **args: Any) -> dict[str, Any]:
    return {"type": "edit", "edited_action": {"name": name, "args": args}}


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_approvals_of_everything_change_nothing_and_repeat_no_call(asynchronous: bool) -> None:
    plain, _ = compiled(two())
    expected = plain.invoke(ASKED, THREAD)
    graph, model = compiled(two())

    async def run(given: Any, **more: Any) -> dict[str, Any]:
        return await turn(graph, given, THREAD, asynchronous=asynchronous, **more)

    out = await run(ASKED, context=approving("plan", "knowledge_retrieval", "answer"))
    assert [request["name"] for request in asked(out)] == ["plan"]
    # Resumed without the settings with which it began, as chat interfaces do.
    out = await run(Command(resume={"decisions": [YES]}))
    assert [request["name"] for request in asked(out)] == ["knowledge_retrieval", "knowledge_retrieval"]
    out = await run(Command(resume={"decisions": [YES, YES]}))
    assert [request["name"] for request in asked(out)] == ["answer"]
    out = await run(Command(resume={"decisions": [YES]}))
    keys = ("answer", "citations", "chain")
    assert [out[key] for key in keys] == [expected[key] for key in keys]
    assert len(model.prompts) == out["usage"]["llm_calls"] == 1


def test_only_the_named_actions_are_asked_about() -> None:
    other = WaitingAction("other")
    graph, _ = compiled(
        plan(node("Who introduced sparsemax?", SPARSEMAX), node("q?", "Fact.", action="other")), "a", actions=[other]
    )
    out = graph.invoke(ASKED, THREAD, context=approving("other"))
    assert [request["args"] for request in asked(out)] == [{"sub_question": "q?", "guess_answer": "Fact.", "action_input": ""}]
    assert not other.requests, "it has not run yet"
    assert decide(graph, YES)["answer"]
    assert len(other.requests) == 1


def test_a_rejected_look_up_fails_with_the_persons_words_and_the_rest_is_answered() -> None:
    other = WaitingAction("other")
    graph, _ = compiled(
        plan(node("Who introduced sparsemax?", SPARSEMAX), node("q?", "Fact.", action="other")),
        corrections(final=f"{SPARSEMAX[:-1]} [1]."),
        actions=[other],
    )
    graph.invoke(ASKED, THREAD, context=approving("other"))
    out = decide(graph, NO)
    assert [item["status"] for item in out["chain"]] == ["kept", "failed"]
    assert "not today" in out["chain"][1]["reason"]
    assert out["answer"] == f"{SPARSEMAX[:-1]} [1]."
    assert not other.requests


def test_an_edit_is_what_runs() -> None:
    first, second = WaitingAction("first"), WaitingAction("second")
    graph, _ = compiled(
        plan(node("a?", "Fact.", action="first", action_input="old"), node("b?", "Fact.", action="first")),
        corrections("A fact.", "B fact.", final="Both facts."),
        actions=[first, second],
    )
    graph.invoke(ASKED, THREAD, context=approving("first"))
    out = decide(graph, edit("first", action_input="new"), edit("second", sub_question="c?", guess_answer=""))
    assert [(r.sub_question, r.action_input) for r in first.requests] == [("a?", "new")]
    assert [r.sub_question for r in second.requests] == ["c?"]
    assert [(item["action"], item["sub_question"]) for item in out["chain"]] == [("first", "a?"), ("second", "c?")]


def test_an_edited_plan_is_what_is_looked_up() -> None:
    graph, model = compiled(two(), corrections(final=SPARSEMAX))
    graph.invoke(ASKED, THREAD, context=approving("plan"))
    step = {"action": "knowledge_retrieval", "sub_question": "Who introduced sparsemax?", "guess_answer": SPARSEMAX}
    out = decide(graph, edit("plan", chain=json.dumps([step])))
    assert [item["answer"] for item in out["chain"]] == [SPARSEMAX]
    assert len(model.prompts) == 2, "the draft was for another chain"


@pytest.mark.parametrize(
    ("what", "decision", "said"),
    [("plan", NO, "The plan was rejected: not today"), ("answer", {"type": "reject"}, "The answer was rejected.")],
)
def test_a_rejected_plan_or_answer_ends_the_turn_with_a_plain_message(what: str, decision: Any, said: str) -> None:
    graph, model = compiled(two())
    graph.invoke(ASKED, THREAD, context=approving(what))
    out = decide(graph, decision)
    assert out["answer"] == out["messages"][-1].text == said
    assert (out["citations"], len(model.prompts)) == ([], 1)
    assert {item["status"] for item in out["chain"]} == {"failed" if what == "plan" else "kept"}


def test_an_edited_answer_keeps_only_citations_that_are_there() -> None:
    graph, _ = compiled(two())
    graph.invoke(ASKED, THREAD, context=approving("answer"))
    out = decide(graph, edit("answer", answer=f"{SPARSEMAX} [2] Forged [7]."))
    assert out["answer"] == f"{SPARSEMAX[:-1]} [1]. Forged."
    assert [citation["id"] for citation in out["citations"]] == ["sparsemax-2016"]
    assert out["messages"][-1].text == out["answer"]
    assert out["knowledge_set"]["Contextual knowledge set"][0]["answer"] == out["answer"]


def test_what_a_person_writes_without_evidence_is_kept_and_marked_as_theirs() -> None:
    graph, _ = compiled(two())
    graph.invoke(ASKED, THREAD, context=approving("answer"))
    out = decide(graph, edit("answer", answer=f"{SPARSEMAX} Fourteen zebras danced in Paris [1]."))
    assert "Fourteen zebras danced in Paris" in out["answer"]
    *chain, own = out["chain"]
    assert [item["status"] for item in chain] == ["kept", "kept"]
    assert own["status"] == "unsupported"
    assert own["reason"].startswith("written by a person; no evidence supports “Fourteen zebras danced in Paris")
    assert own["evidence"] == [citation["id"] for citation in out["citations"]]


def test_an_answer_given_at_once_is_approved_as_a_plan_and_an_edit_of_it_is_verified() -> None:
    graph, model = compiled(direct(f"{HOPFIELD[:-1]} [1]."))
    out = graph.invoke({"question": "When was the Hopfield network described?"}, THREAD, context=approving("plan"))
    (request,) = asked(out)
    assert request["args"]["draft_answer"] == f"{HOPFIELD[:-1]} [1]."
    assert "[1] hopfield-1982.md" in request["description"]
    out = decide(graph, edit("plan", draft_answer="It stores patterns as minima of an energy function."))
    assert out["answer"] == "It stores patterns as minima of an energy function [1]."
    assert [item["status"] for item in out["chain"]] == ["kept"]
    assert len(model.prompts) == 1


@pytest.mark.parametrize(
    ("name", "decision", "said", "statuses"),
    [
        ("plan", YES, fakes.BACK, ["asked"]),
        ("plan", edit("plan", clarification="Which one? Please name it."), "Which one? Please name it.", ["asked"]),
        ("plan", edit("plan", draft_answer=HOPFIELD), f"{HOPFIELD[:-1]} [1].", ["kept"]),
        ("plan", edit("plan", clarification=HOPFIELD), f"{HOPFIELD[:-1]} [1].", ["kept"]),
        ("plan", NO, "The plan was rejected: not today", []),
        ("answer", YES, fakes.BACK, ["asked"]),
        ("answer", edit("answer", answer="Which one? Please name it."), "Which one? Please name it.", ["asked"]),
        ("answer", edit("answer", answer=f"{HOPFIELD} Or do you?"), f"{HOPFIELD[:-1]} [1]. Or do you?", ["corrected"]),
        ("answer", edit("answer", answer=HOPFIELD), f"{HOPFIELD[:-1]} [1].", ["corrected"]),
        ("answer", {"type": "reject"}, "The answer was rejected.", []),
    ],
)
def test_a_question_back_is_approved_as_a_plan_and_as_an_answer(name: str, decision: Any, said: str, statuses: Any) -> None:
    graph, model = compiled(fakes.asking())
    out = graph.invoke({"question": fakes.VAGUE}, THREAD, context=approving(name))
    assert asked(out)[0]["args"]["clarification" if name == "plan" else "answer"] == fakes.BACK
    out = decide(graph, decision)
    assert (out["answer"], out["clarification"]) == (said, said if statuses == ["asked"] else "")
    assert ([item["status"] for item in out["chain"]], len(model.prompts)) == (statuses, 1)


def test_what_is_to_be_approved_is_not_looked_up_before_the_plan() -> None:
    retriever = KeywordRetriever()
    graph, _ = compiled(direct("Nothing is known."), retriever=retriever)
    out = graph.invoke(ASKED, THREAD, context=approving("knowledge_retrieval"))
    assert not retriever.asked
    assert asked(out)[0]["args"]["sub_question"] == "optimized?", "the one look-up of an empty chain"
    decide(graph, edit("knowledge_retrieval", sub_question="Who introduced sparsemax?"))
    assert retriever.asked == ["Who introduced sparsemax?"]


@pytest.mark.parametrize("names", [["plan"], ["answer"], ["correct"]])
def test_nothing_is_streamed_before_it_is_approved_and_all_of_it_after(names: list[str]) -> None:
    wrong = plan(node("Who introduced sparsemax?"), final="")
    graph, _ = compiled(wrong, corrections(SPARSEMAX, final=SPARSEMAX))

    def text(given: Any, **more: Any) -> str:
        return "".join(chunk.text for chunk, _ in graph.stream(given, THREAD, stream_mode="messages", **more))

    before = text(ASKED, context=approving(*names))
    after = text(Command(resume={"decisions": [YES]}))
    assert before == ""
    assert after == graph.get_state(THREAD).values["answer"] == f"{SPARSEMAX[:-1]} [1]."


def test_an_edited_plan_is_not_answered_with_what_was_recalled_or_found_for_the_old_one() -> None:
    first = plan(node("Who introduced sparsemax?", SPARSEMAX), final=SPARSEMAX)
    again = plan(node("Who introduced sparsemax?"))
    graph, _ = compiled(first, again, corrections(HOPFIELD, final=HOPFIELD))
    graph.invoke({"question": "Who introduced sparsemax?"}, THREAD)
    graph.invoke({"question": "Who introduced sparsemax?"}, THREAD, interrupt_after=["plan"])
    made = graph.get_state(THREAD).values["plan"]
    (step,) = made["nodes"]
    edited = {**made, "nodes": [{**step, "sub_question": "When was the Hopfield network described?"}]}
    graph.update_state(THREAD, {"plan": edited})
    out = graph.invoke(None, THREAD)
    assert [(item["status"], item["answer"]) for item in out["chain"]] == [("filled", HOPFIELD)]


def test_an_answer_that_needed_no_correction_is_not_asked_about_where_only_those_are() -> None:
    graph, _ = compiled(two())
    assert "__interrupt__" not in graph.invoke(ASKED, THREAD, context=approving("correct"))
    graph, _ = compiled(plan(node("Who introduced sparsemax?")), corrections(SPARSEMAX, final=SPARSEMAX))
    out = graph.invoke(ASKED, THREAD, context=approving("correct"))
    assert [request["name"] for request in asked(out)] == ["answer"]


@pytest.mark.parametrize("by_id", [False, True])
@pytest.mark.parametrize("wrong", [[], [YES, YES, YES], [YES, {"type": "respond", "message": "x"}], [YES, edit("plan")]])
def test_a_wrong_decision_leaves_the_turn_waiting(wrong: list[Any], by_id: bool) -> None:
    graph, model = compiled(two())
    (interrupt,) = graph.invoke(ASKED, THREAD, context=approving("knowledge_retrieval"))["__interrupt__"]

    def resume(decisions: list[Any]) -> Any:
        response = {"decisions": decisions}
        return graph.invoke(Command(resume={interrupt.id: response} if by_id else response), THREAD)

    for _ in range(2):
        with pytest.raises(InputError):
            resume(wrong)
    assert graph.get_state(THREAD).next == ("approve",)
    assert [item["status"] for item in resume([YES, YES])["chain"]] == ["kept", "kept"]
    assert len(model.prompts) == 1


def test_a_repaired_input_is_approved_again() -> None:
    class Sql(WaitingAction):
        repairs = True

        async def retrieve(self, request: Any) -> list[Document]:
            self.requests.append(request)
            if request.action_input != "good":
                raise ActionInputError("no such column")
            return [Document("Two fish were sold.", id="t")]

    sql = Sql("sql")
    graph, model = compiled(
        plan(node("How many fish?", "Two fish were sold.", action="sql", action_input="bad"), final="Two fish were sold."),
        json.dumps({"inputs": [{"index": 1, "action_input": "good"}]}),
        actions=[sql],
    )
    out = graph.invoke(ASKED, THREAD, context=approving("sql"))
    assert asked(out)[0]["args"]["action_input"] == "bad"
    out = decide(graph, YES)
    assert asked(out)[0]["args"]["action_input"] == "good"
    assert [r.action_input for r in sql.requests] == ["bad"]
    assert decide(graph, YES)["chain"][0]["status"] == "kept"
    assert len(model.prompts) == 2


@pytest.mark.parametrize(("decision", "depths", "status"), [(YES, [1, 2], "kept"), (NO, [1], "unsupported")])
def test_a_deeper_look_is_approved_again(decision: dict[str, Any], depths: list[int], status: str) -> None:
    web = WebAction("web", SPARSEMAX)
    graph, _ = compiled(
        plan(node("Who introduced sparsemax?", SPARSEMAX, action="web"), final=SPARSEMAX),
        corrections("", supported=False, final="I found nothing."),
        actions=[web],
        retriever=None,
    )
    graph.invoke(ASKED, THREAD, context=approving("web"))
    assert "deeper" in asked(decide(graph, YES))[0]["description"]
    out = decide(graph, decision)
    assert [r.depth for r in web.requests] == depths
    assert out["chain"][0]["status"] == status


def test_a_waiting_turn_can_be_edited_and_forked() -> None:
    graph, _ = compiled(two(), corrections(final=SPARSEMAX), corrections(final=HOPFIELD))
    graph.invoke(ASKED, THREAD, context=approving("knowledge_retrieval"))
    waiting = graph.get_state(THREAD)
    made = waiting.values["plan"]
    for n, expected in ((1, SPARSEMAX), (0, HOPFIELD)):
        edited = {**made, "draft_answer": "", "nodes": made["nodes"][n : n + 1]}
        fork = graph.update_state(waiting.config, {"plan": edited}, "plan")
        assert len(asked(graph.invoke(None, fork))) == 1
        assert [item["answer"] for item in decide(graph, YES)["chain"]] == [expected]


def test_the_stream_of_each_run_tells_of_the_interrupt_once() -> None:
    graph, _ = compiled(two())
    steps = graph.stream(ASKED, THREAD, context=approving("knowledge_retrieval"), stream_mode="updates")
    assert [name for step in steps for name in step].count("__interrupt__") == 1


def test_a_new_question_discards_the_waiting_turn() -> None:
    graph, _ = compiled(two(), two())
    graph.invoke(ASKED, THREAD, context=approving("knowledge_retrieval"))
    out = graph.invoke({"question": "And now?"}, THREAD)
    assert [r["original_question"] for r in out["knowledge_set"]["Contextual knowledge set"]] == ["And now?"]


@pytest.mark.parametrize(("query", "status"), [("SELECT sum(sold) FROM fish", "filled"), ("DROP TABLE fish", "failed")])
def test_sql_that_a_person_wrote_is_what_is_run_and_guarded_as_any_other(query: str, status: str, tmp_path: Path) -> None:
    (tmp_path / "fish.csv").write_text("kind,sold\ncod,3\nhake,4\n", encoding="utf-8")
    sql = node("How many were sold?", action="data_analysis", action_input="SELECT count(*) FROM fish")
    graph, _ = compiled(
        plan(sql), corrections("7", final="7 were sold."), actions=[DataAnalysis([str(tmp_path)])], retriever=None
    )
    out = graph.invoke(ASKED, THREAD, context=approving("data_analysis"))
    assert asked(out)[0]["args"]["action_input"] == "SELECT count(*) FROM fish"
    out = decide(graph, edit("data_analysis", action_input=query))
    assert [(item["action_input"], item["status"]) for item in out["chain"]] == [(query, status)]
    assert (out["citations"] != []) == (status == "filled")


def test_the_turn_waits_inside_another_graph() -> None:
    inner = build_graph(
        model=ScriptedModel(replies=[two()]), retriever=KeywordRetriever(), context=approving("plan")
    ).compile()
    outer = StateGraph(MessagesState).add_node("research", inner).add_edge(START, "research").add_edge("research", END)
    graph = outer.compile(checkpointer=InMemorySaver())
    out = graph.invoke({"messages": [{"role": "user", "content": "When and who?"}]}, THREAD)
    assert asked(out)[0]["name"] == "plan"
    assert "1982" in decide(graph, YES)["messages"][-1].text


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_approval_needs_a_checkpointer_before_anything_is_paid_for(asynchronous: bool) -> None:
    model = ScriptedModel(replies=[two()])
    graph = build_graph(model=model, retriever=KeywordRetriever()).compile()
    with pytest.raises(InputError, match=r"compile\(checkpointer="):
        await turn(graph, ASKED, asynchronous=asynchronous, context=approving("plan"))
    assert not model.prompts


def test_names_are_those_of_the_graph() -> None:
    with pytest.raises(InputError, match="'web_querying': it takes plan, correct, answer, knowledge_retrieval"):
        build_graph(retriever=KeywordRetriever(), context=approving("web_querying"))
    graph, model = compiled(two())
    with pytest.raises(InputError, match="'plans'"):
        graph.invoke(ASKED, THREAD, context=ConvCoAContext(approve=["plans"]))
    assert not model.prompts
