"""The conversation memory inside the graph."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from langgraph_convcoa import ConvCoAContext, build_graph
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.memory.sharing import user_of
from tests.fakes import FACTS, KeywordRetriever, ScriptedModel, WaitingAction, corrections, direct, node, plan

HOPFIELD = "John Hopfield described the Hopfield network in 1982."
SPARSEMAX = "Sparsemax was introduced by Martins and Astudillo in 2016."
ASKED = "When was the Hopfield network described?"
AGAIN = "Can you tell me when the Hopfield network was described?"


def config(name: str = "t") -> RunnableConfig:
    return {"configurable": {"thread_id": name}}


def compiled(*replies: Any, retriever: KeywordRetriever | None = None, **more: Any) -> tuple[Any, ScriptedModel]:
    model = ScriptedModel(replies=list(replies))
    graph = build_graph(model=model, retriever=retriever or KeywordRetriever(), **more)
    return graph.compile(checkpointer=InMemorySaver(), store=InMemoryStore()), model


def invoke(graph: Any, question: str, asynchronous: bool = False, name: str = "t", **context: Any) -> dict[str, Any]:
    """A turn in the papers' form, in which every sub-question is planned before anything is looked up."""
    settings = ConvCoAContext(**{"look_first": False, **context})
    if asynchronous:
        return dict(asyncio.run(graph.ainvoke({"question": question}, config(name), context=settings)))
    return dict(graph.invoke({"question": question}, config(name), context=settings))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_sub_question_that_was_answered_is_recalled_with_its_citation(asynchronous: bool) -> None:
    retriever = KeywordRetriever()
    graph, model = compiled(
        plan(node(ASKED, HOPFIELD), final=HOPFIELD),
        plan(node(AGAIN)),
        corrections(final=f"{HOPFIELD[:-1]} [1]."),
        retriever=retriever,
    )
    first = invoke(graph, "When?", asynchronous)
    out = invoke(graph, "When again?", asynchronous)
    (item,) = out["chain"]
    assert (item["status"], item["answer"]) == ("recalled", HOPFIELD)
    assert item["reason"] == "round 1 answered it"
    assert out["citations"][0]["id"] == first["citations"][0]["id"] == "hopfield-1982"
    assert out["citations"][0]["source"] == "hopfield-1982.md"
    assert len(retriever.asked) == 1, "nothing was retrieved again"
    assert (out["usage"]["retrievals"], out["usage"]["recalled"]) == (0, 1)
    assert out["usage"]["llm_calls"] == 2
    assert out["answer"] == f"{HOPFIELD[:-1]} [1]."
    assert out["knowledge_set"]["Contextual knowledge set"][1]["convcoa"]["chain"][0]["status"] == "recalled"
    assert model.replies == []


def test_an_answer_that_was_given_at_once_is_recalled_where_its_question_comes_again() -> None:
    retriever = KeywordRetriever()
    graph, _ = compiled(
        direct(f"{HOPFIELD[:-1]} [1].", ASKED),
        plan(node(AGAIN)),
        corrections(final=f"{HOPFIELD[:-1]} [1]."),
        retriever=retriever,
    )
    invoke(graph, ASKED, look_first=True)
    out = invoke(graph, "Once more, and who?", look_first=True)
    assert [item["status"] for item in out["chain"]] == ["recalled"]
    assert out["citations"][0]["id"] == "hopfield-1982"
    assert len(retriever.asked) == 2, "each question as it stands, and no sub-question"


def test_a_draft_over_recalled_answers_takes_one_call() -> None:
    graph, _ = compiled(plan(node(ASKED, HOPFIELD), final=HOPFIELD), plan(node(AGAIN, HOPFIELD), final=HOPFIELD))
    invoke(graph, "When?")
    out = invoke(graph, "When again?")
    assert out["answer"] == f"{HOPFIELD[:-1]} [1]."
    assert out["usage"]["llm_calls"] == 1


def test_what_is_not_recalled_is_retrieved_beside_it() -> None:
    retriever = KeywordRetriever()
    graph, _ = compiled(
        plan(node(ASKED, HOPFIELD), final=HOPFIELD),
        plan(node("Who introduced sparsemax?", SPARSEMAX), node(AGAIN), final=""),
        corrections(final=f"{SPARSEMAX} {HOPFIELD}"),
        retriever=retriever,
    )
    invoke(graph, "When?")
    out = invoke(graph, "Both?")
    assert [item["status"] for item in out["chain"]] == ["kept", "recalled"]
    assert len(retriever.asked) == 2
    assert {citation["id"] for citation in out["citations"]} == {"sparsemax-2016", "hopfield-1982"}
    assert len(out["chain"][1]["evidence"]) == len(set(out["chain"][1]["evidence"]))


@pytest.mark.parametrize(
    ("second", "context"),
    [
        ("When was the Hopfield network popular?", {}),
        ("When was it described?", {}),
        (AGAIN, {"recall_answers": False}),
        (AGAIN, {"recall_max_age": 0.0}),
    ],
)
def test_what_is_new_leaning_or_stale_is_retrieved(second: str, context: dict[str, Any], monkeypatch: Any) -> None:
    retriever = KeywordRetriever()
    graph, _ = compiled(
        plan(node(ASKED, HOPFIELD), final=HOPFIELD),
        plan(node(second, HOPFIELD), final=HOPFIELD),
        corrections(final="A [1]."),
        retriever=retriever,
    )
    invoke(graph, "When?", **context)
    # An age of no seconds at all: the round is of this second.
    if "recall_max_age" in context:
        import time

        time.sleep(1.1)
    out = invoke(graph, "And?", **context)
    assert out["chain"][0]["status"] == "kept"
    assert out["usage"]["recalled"] == 0
    assert len(retriever.asked) == 2


def test_news_is_asked_of_the_web_every_time() -> None:
    web, fresh = WaitingAction("web_querying"), WaitingAction("prices")
    web.always_fresh = fresh.always_fresh = True  # type: ignore[attr-defined]
    step = [node(ASKED, HOPFIELD, action="web_querying"), node("Who introduced sparsemax?", SPARSEMAX, action="prices")]
    graph, _ = compiled(*[plan(*step), "A [1]."] * 2, actions=[web, fresh])
    for _ in range(2):
        out = invoke(graph, "When?")
    assert [item["status"] for item in out["chain"]] == ["kept", "kept"]
    assert len(web.requests) == len(fresh.requests) == 2


def test_an_unsupported_answer_is_looked_up_again() -> None:
    retriever = KeywordRetriever()
    replies = [plan(node("Who introduced sparsemax?")), corrections("", supported=False, final="It is unknown.")]
    graph, _ = compiled(*replies * 2, retriever=retriever)
    invoke(graph, "Who?")
    assert invoke(graph, "Who?")["chain"][0]["status"] == "unsupported"
    assert len(retriever.asked) == 2


def test_threads_do_not_recall_each_others_answers() -> None:
    graph, _ = compiled(*[plan(node(ASKED, HOPFIELD), final=HOPFIELD)] * 2)
    invoke(graph, "When?", name="a")
    out = invoke(graph, "When?", name="b")
    assert out["chain"][0]["status"] == "kept"
    assert len(out["knowledge_set"]["Contextual knowledge set"]) == 1


def test_threads_of_a_user_share_when_that_is_asked_for_and_only_then() -> None:
    sharing: dict[str, Any] = {"share_knowledge": True, "user_id": "ann"}
    replies = [plan(node(ASKED, HOPFIELD), final=HOPFIELD)] * 4
    graph, _ = compiled(*replies)
    invoke(graph, "When?", name="a", **sharing)
    out = invoke(graph, "When?", name="b", **sharing)
    assert out["chain"][0]["status"] == "recalled"
    assert out["chain"][0]["reason"] == "another thread answered it"
    assert len(out["knowledge_set"]["Contextual knowledge set"]) == 1, "a thread's own set holds its own rounds"
    assert invoke(graph, "When?", name="c", share_knowledge=True, user_id="bob")["chain"][0]["status"] == "kept"
    assert invoke(graph, "When?", name="d")["chain"][0]["status"] == "kept"


def test_sharing_without_a_user_is_an_error() -> None:
    graph, _ = compiled(plan())
    with pytest.raises(InputError, match="user"):
        invoke(graph, "When?", share_knowledge=True)


def test_sharing_without_a_thread_is_an_error() -> None:
    graph = build_graph(model=ScriptedModel(replies=[plan()]), retriever=KeywordRetriever()).compile(store=InMemoryStore())
    with pytest.raises(InputError, match="thread"):
        graph.invoke({"question": "When?"}, context=ConvCoAContext(share_knowledge=True, user_id="ann"))


@pytest.mark.parametrize("authenticated", ["", 7, b"ann"])
def test_a_user_whom_the_server_does_not_know_is_nobody(authenticated: object) -> None:
    with pytest.raises(InputError, match="user"):
        user_of("ann", {"configurable": {"langgraph_auth_user_id": authenticated, "user_id": "ann"}})


class Search(WaitingAction):
    """Finds what the question's number says, never the same twice: a search whose results vary."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.results = [
            ["Sparsemax was introduced by Martins and Astudillo in 2016 in New York.", "Ants.", "Bees."],
            ["Sparsemax gives sparse weights.", "Crabs live in water.", "Ducks fly."],
            ["Bread is baked.", "Cakes are sweet.", "Dough is raw."],
        ]

    async def retrieve(self, request: Any) -> list[Document]:
        self.requests.append(request)
        texts = self.results[len(self.requests) - 1]
        return [Document(text, id=text[:12], metadata={"source": "web"}) for text in texts]


def test_earlier_evidence_takes_the_place_of_the_weakest_and_stays_out_of_another_topic() -> None:
    questions = ["Who introduced sparsemax?", "In which city was sparsemax introduced?", "How is bread baked?"]
    plans = [plan(node(q, action="library"), optimized=q) for q in questions]
    replies = [reply for planned in plans for reply in (planned, corrections("Yes."), "Yes [1].")]
    search = Search("library")
    model = ScriptedModel(replies=replies)
    graph = build_graph(model=model, actions=[search]).compile(checkpointer=InMemorySaver())
    outs = [invoke(graph, question) for question in questions]
    assert [out["usage"]["reused"] for out in outs] == [0, 1, 0]
    assert "Sparsemax wa" in outs[1]["chain"][0]["evidence"]
    assert len(outs[1]["chain"][0]["evidence"]) == 3, "two thirds stay, and as many pieces as before"
    assert "New York" in model.prompts[4], "the model reads it"
    assert all("Sparsemax" not in prompt.split("evidence")[-1] for prompt in model.prompts[7:8])


def test_news_is_not_mixed_with_earlier_evidence() -> None:
    questions = ["Who introduced sparsemax?", "In which city was sparsemax introduced?"]
    plans = [plan(node(q, action="web_querying"), optimized=q) for q in questions]
    model = ScriptedModel(replies=[reply for planned in plans for reply in (planned, corrections("Yes."), "Yes [1].")])
    search = Search("web_querying")
    search.always_fresh = True  # type: ignore[attr-defined]
    graph = build_graph(model=model, actions=[search]).compile(checkpointer=InMemorySaver())
    outs = [invoke(graph, question) for question in questions]
    assert [out["usage"]["reused"] for out in outs] == [0, 0]
    assert "Sparsemax wa" not in outs[1]["chain"][0]["evidence"]


def test_the_evidence_memory_is_bounded_and_switched_off() -> None:
    for capacity, expected in ((3, 3), (0, 0)):
        graph, _ = compiled(*[plan(node(f"{word}?"), optimized=f"{word}?") for word in ("Hopfield", "Sparsemax", "trains")])
        graph = build_graph(
            model=ScriptedModel(by_prompt=lambda prompt: plan(node("John Sparsemax Dense retrieval"))),
            retriever=KeywordRetriever(k=4),
        ).compile(checkpointer=InMemorySaver())
        for _ in range(3):
            invoke(graph, "All?", evidence_memory=capacity)
        assert len(graph.get_state(config()).values.get("evidence_memory") or []) == expected


def test_the_prompt_holds_the_relevant_early_round_and_not_every_round() -> None:
    facts = list(FACTS.values())
    questions = [
        "Who introduced sparsemax?",
        *[f"Where do the birds number {n} live?" for n in range(20)],
        "sparsemax author?",
    ]
    replies = [r for q in questions for r in (plan(optimized=q), corrections(facts[1], final=f"{facts[1]} [1]"))]
    graph, model = compiled(*replies)
    for question in questions:
        invoke(graph, question)
    view = model.prompts[-2]
    assert "User: Who introduced sparsemax?\n" in view
    assert "User: Where do the birds number 19 live?\n" in view
    assert view.count("User: ") <= 8
    assert len(graph.get_state(config()).values["history"]) <= 10


def test_a_recalled_turn_is_msgpack_safe_and_reads_back_as_json() -> None:
    graph, _ = compiled(plan(node(ASKED, HOPFIELD), final=HOPFIELD), plan(node(AGAIN, HOPFIELD), final=HOPFIELD))
    invoke(graph, "When?")
    out = invoke(graph, "When again?")
    values = graph.get_state(config()).values
    assert values["recalled"] == values["shared"] == values["findings"] == []
    assert json.loads(json.dumps(out["knowledge_set"])) == out["knowledge_set"]
    assert values["evidence_memory"][-1]["round"] in (1, 2)
