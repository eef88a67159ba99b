"""The conversation memory inside the graph."""

from __future__ import annotations

import time
from typing import Any

import pytest
from langchain_core.documents import Document
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_convcoa import build_graph
from tests.fakes import FACTS, KeywordRetriever, ScriptedModel, WaitingAction, corrections, direct, node, plan, turn

HOPFIELD = "John Hopfield described the Hopfield network in 1982."
SPARSEMAX = "Sparsemax was introduced by Martins and Astudillo in 2016."
ASKED = "When was the Hopfield network described?"
AGAIN = "Can you tell me when the Hopfield network was described?"


THREAD: Any = {"configurable": {"thread_id": "t"}}


def compiled(*replies: Any, retriever: KeywordRetriever | None = None, **more: Any) -> tuple[Any, ScriptedModel]:
    model = ScriptedModel(replies=list(replies))
    graph = build_graph(model=model, retriever=retriever or KeywordRetriever(), **more)
    return graph.compile(checkpointer=InMemorySaver()), model


def invoke(graph: Any, question: str, **context: Any) -> dict[str, Any]:
    """A turn in the papers' form, in which every sub-question is planned before anything is looked up."""
    return dict(graph.invoke({"question": question}, THREAD, context={"look_first": False, **context}))


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_sub_question_that_was_answered_is_recalled_with_its_citation(asynchronous: bool) -> None:
    retriever = KeywordRetriever()
    graph, model = compiled(
        plan(node(ASKED, HOPFIELD), final=HOPFIELD),
        plan(node(AGAIN)),
        corrections(final=f"{HOPFIELD[:-1]} [1]."),
        retriever=retriever,
    )
    first, out = [
        await turn(graph, question, THREAD, asynchronous=asynchronous, context={"look_first": False})
        for question in ("When?", "When again?")
    ]
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
    time.sleep(1.1 if "recall_max_age" in context else 0)
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


def searched(search: Search, *questions: str) -> tuple[list[dict[str, Any]], ScriptedModel]:
    plans = [plan(node(q, action=search.name), optimized=q) for q in questions]
    model = ScriptedModel(replies=[reply for planned in plans for reply in (planned, corrections("Yes."), "Yes [1].")])
    graph = build_graph(model=model, actions=[search]).compile(checkpointer=InMemorySaver())
    return [invoke(graph, question) for question in questions], model


WHO, WHERE = "Who introduced sparsemax?", "In which city was sparsemax introduced?"


def test_earlier_evidence_takes_the_place_of_the_weakest_and_stays_out_of_another_topic() -> None:
    outs, model = searched(Search("library"), WHO, WHERE, "How is bread baked?")
    assert [out["usage"]["reused"] for out in outs] == [0, 1, 0]
    assert "Sparsemax wa" in outs[1]["chain"][0]["evidence"]
    assert len(outs[1]["chain"][0]["evidence"]) == 3, "two thirds stay, and as many pieces as before"
    assert "New York" in model.prompts[4], "the model reads it"
    assert all("Sparsemax" not in prompt.split("evidence")[-1] for prompt in model.prompts[7:8])


def test_news_is_not_mixed_with_earlier_evidence() -> None:
    search = Search("web_querying")
    search.always_fresh = True  # type: ignore[attr-defined]
    outs, _ = searched(search, WHO, WHERE)
    assert [out["usage"]["reused"] for out in outs] == [0, 0]
    assert "Sparsemax wa" not in outs[1]["chain"][0]["evidence"]


def test_the_evidence_memory_is_bounded_and_switched_off() -> None:
    for capacity, expected in ((3, 3), (0, 0)):
        graph = build_graph(
            model=ScriptedModel(by_prompt=lambda prompt: plan(node("John Sparsemax Dense retrieval"))),
            retriever=KeywordRetriever(k=4),
        ).compile(checkpointer=InMemorySaver())
        for _ in range(3):
            invoke(graph, "All?", evidence_memory=capacity)
        assert len(graph.get_state(THREAD).values.get("evidence_memory") or []) == expected


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
    assert len(graph.get_state(THREAD).values["history"]) <= 10
