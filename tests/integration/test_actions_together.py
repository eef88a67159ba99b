"""Turns over documents, the web and tables: side by side in the chain, SQL mended once, settings that reach their action."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from langgraph_convcoa import DataAnalysis, ToolAction, WebQuerying, build_graph
from langgraph_convcoa.actions.base import ActionInputError, ActionRequest
from langgraph_convcoa.errors import ModelError
from langgraph_convcoa.reasoning.base import ActionChain, Corrected, Reasoner
from tests.fakes import KeywordRetriever, ScriptedModel, WaitingAction, corrections, node, plan, turn

pytest.importorskip("duckdb")
pytest.importorskip("sqlglot")

QUESTION = "Which region had the highest revenue in 2019?"
BEST = "SELECT region, SUM(revenue) AS revenue FROM sales WHERE year = 2019 GROUP BY region ORDER BY revenue DESC LIMIT 1"
GIVES = f"{BEST} gives region North, revenue 1234.5 (highest total revenue)"


@pytest.fixture
def sales(tmp_path: Path) -> Path:
    file = tmp_path / "sales.csv"
    file.write_text("region,year,revenue\nNorth,2019,1234.5\nSouth,2019,900\nNorth,2020,10\n")
    return file


@pytest.fixture
def tables(sales: Path) -> Iterator[DataAnalysis]:
    action = DataAnalysis(sales)
    yield action
    action.close()


def data(sql: str, sub: str = QUESTION, guess: str = "") -> dict[str, Any]:
    return node(sub, guess, action="data_analysis", action_input=sql)


async def run(graph: Any, question: str, asynchronous: bool) -> dict[str, Any]:
    return await turn(graph.compile(), question, asynchronous=asynchronous)


def inputs(*given: str) -> str:
    return json.dumps({"inputs": [{"index": n, "action_input": text} for n, text in enumerate(given, 1)]})


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_table_question_is_answered_with_the_figure_and_its_query(tables: DataAnalysis, asynchronous: bool) -> None:
    answer = "North had the highest revenue in 2019, 1,234.5"
    model = ScriptedModel(replies=[plan(data(BEST)), corrections(f"{answer}.", final=f"{answer} [1].")])
    out = await run(build_graph(model=model, actions=[tables]), QUESTION, asynchronous)
    assert "1,234.5" in out["answer"]
    [item] = out["chain"]
    assert (item["action"], item["action_input"], item["status"]) == ("data_analysis", BEST, "filled")
    assert item["score"] > 0.6
    [citation] = out["citations"]
    assert citation["quote"] == GIVES
    assert citation["source"].endswith("sales.csv")
    assert out["usage"]["llm_calls"] == 2
    assert "region VARCHAR" in model.prompts[0]
    assert "1234.5" in model.prompts[1]


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_all_failing_queries_are_mended_in_one_call(tables: DataAnalysis, asynchronous: bool) -> None:
    first = plan(data("SELECT area FROM sales"), data("DROP TABLE sales", "Which year?"), data(BEST, "And so?"))
    replies = [
        first,
        inputs(BEST, "SELECT MAX(year) AS year FROM sales"),
        corrections("North.", "2020.", "North.", final="North [1]."),
    ]
    model = ScriptedModel(replies=replies)
    out = await run(build_graph(model=model, actions=[tables]), QUESTION, asynchronous)
    assert [item["status"] for item in out["chain"]] == ["filled", "filled", "filled"]
    assert out["chain"][1]["action_input"] == "SELECT MAX(year) AS year FROM sales"
    assert out["usage"]["llm_calls"] == 3 == len(model.prompts)
    assert out["usage"]["per_node"]["repair"]["llm_calls"] == 1
    repair = model.prompts[1]
    assert "there is no column 'area': the columns are region, year, revenue" in repair
    assert "only a SELECT is run, not DROP" in repair
    assert "And so?" not in repair, "what worked is not asked for again"


@pytest.mark.parametrize("reply", ["no JSON", RuntimeError("down"), inputs("SELECT nothing FROM sales")])
def test_a_query_that_fails_again_is_told_and_not_mended_twice(tables: DataAnalysis, reply: Any) -> None:
    model = ScriptedModel(replies=[plan(data("SELECT area FROM sales")), reply])
    out = build_graph(model=model, actions=[tables]).compile().invoke({"question": QUESTION})
    [item] = out["chain"]
    assert item["status"] == "failed"
    assert item["reason"].startswith("there is no column")
    assert out["answer"].startswith(f"Could not look up “{QUESTION}”: there is no column")
    assert out["usage"]["llm_calls"] == 2, "no model is asked what to say of nothing"


def test_without_corrections_there_is_no_repair(tables: DataAnalysis) -> None:
    model = ScriptedModel(replies=[plan(data("SELECT area FROM sales"))])
    out = build_graph(model=model, actions=[tables]).compile().invoke({"question": QUESTION}, context={"max_corrections": 0})
    assert (out["chain"][0]["status"], out["usage"]["llm_calls"]) == ("failed", 1)


def test_a_reasoner_that_cannot_repair_is_not_asked_to(tables: DataAnalysis) -> None:
    class Own(Reasoner):
        def plan(self, request: Any, config: Any = None) -> ActionChain:
            return ActionChain.single(request.question, "data_analysis")

        def correct(self, request: Any, config: Any = None) -> Corrected:
            return Corrected(answer="Nothing.")

    out = build_graph(reasoner=Own(), actions=[tables]).compile().invoke({"question": QUESTION})
    assert out["chain"][0]["status"] == "failed"


def test_a_repaired_turn_survives_its_checkpoints(tables: DataAnalysis) -> None:
    guess = "North had the highest revenue in 2019, 1,234.5."
    replies = [plan(data("SELECT area FROM sales", guess=guess)), inputs(BEST), RuntimeError("down")]
    model = ScriptedModel(replies=replies)
    graph = build_graph(model=model, actions=[tables]).compile(checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "a"}}
    # The guess is kept, so that nothing could stand in for the answer.
    with pytest.raises(ModelError, match="failed: RuntimeError"):
        graph.invoke({"question": QUESTION}, thread)
    model.replies.append(corrections(final="North [1]."))
    out = graph.invoke(None, thread)
    assert (out["chain"][0]["action_input"], out["chain"][0]["status"]) == (BEST, "kept")
    assert len(model.prompts) == 4, "neither the plan nor the repair is paid for twice"


def test_the_deeper_look_and_the_repair_go_out_together(tables: DataAnalysis) -> None:
    deep = WaitingAction("web", deepens=True)
    first = plan(node("Which?", action="web"), data("SELECT area FROM sales"))
    replies = [first, inputs(BEST), corrections("Fact.", "North.", final="North [2].")]
    model = ScriptedModel(replies=replies)
    out = build_graph(model=model, actions=[deep, tables]).compile().invoke({"question": QUESTION})
    assert out["chain"][1]["status"] == "filled"
    assert [request.depth for request in deep.requests] == [1, 2]


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_documents_web_and_tables_stand_side_by_side(tables: DataAnalysis, asynchronous: bool) -> None:
    pages = [{"title": "Sales tax", "url": "https://example.org/tax", "snippet": "The sales tax of Northland is 7 percent."}]
    web = WebQuerying(lambda query: pages)
    guesses = [
        "John Hopfield described the Hopfield network in 1982.",
        "The sales tax of Northland is 7 percent.",
        "North had the highest revenue in 2019, 1,234.5.",
    ]
    first = plan(
        node("When was the Hopfield network described?", guesses[0]),
        node("What is the sales tax of Northland?", guesses[1], action="web_querying"),
        data(BEST, guess=guesses[2]),
        final=" ".join(guesses),
    )
    model = ScriptedModel(replies=[first])
    graph = build_graph(model=model, retriever=KeywordRetriever(), actions=[web, tables])
    out = await run(graph, "When, what and which?", asynchronous)
    assert [item["action"] for item in out["chain"]] == ["knowledge_retrieval", "web_querying", "data_analysis"]
    assert [item["status"] for item in out["chain"]] == ["kept"] * 3
    assert out["usage"]["retrievals"] == 4, "the documents are asked before, for the question itself"
    assert all(item["evidence"] and item["score"] > 0.6 for item in out["chain"])
    sources = [citation["source"] for citation in out["citations"]]
    assert sources[:2] == ["hopfield-1982.md", "https://example.org/tax"]
    assert sources[2].endswith("sales.csv")
    assert out["usage"]["llm_calls"] == 1


def test_a_tool_gets_its_arguments_from_the_plan() -> None:
    @tool
    def population(city: str, year: int) -> str:
        """The population of a city in a year."""
        return f"{city} had {year * 2} inhabitants in {year}."

    arguments = {"city": "Bern", "year": 1900}
    wrong = plan(node("How many?", action="population", action_input="Bern"))
    filled = corrections("Bern had 3800 inhabitants in 1900.", final="3800 [1].")
    replies = [wrong, inputs(json.dumps(arguments)), filled]
    model = ScriptedModel(replies=[*replies, plan(node("How many?", action="population", action_input=arguments)), filled])
    graph = build_graph(model=model, actions=[ToolAction(population)]).compile()
    first, as_object = (graph.invoke({"question": "?"}) for _ in range(2))
    assert first["chain"][0]["answer"] == as_object["chain"][0]["answer"] == "Bern had 3800 inhabitants in 1900."
    assert (first["usage"]["llm_calls"], as_object["usage"]["llm_calls"]) == (3, 2)


def test_the_command_line_says_that_tables_need_a_model(sales: Path, cli: Any) -> None:
    done = cli("ask", "What was the revenue of South in 2019?", "--data", sales)
    assert "no SQL was written for the tables: a chat model writes it" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "missing.csv"], "no file missing.csv"),
        (["--search", "ddgs"], "--search needs --web"),
        ([], "--data TABLES, or --web"),
        (["--data", "postgresql://reader:hunter2@127.0.0.1:1/x"], "postgresql://127.0.0.1:1/x cannot be read"),
        (["--web", "--search", "nosuch"], "search"),
    ],
)
def test_the_command_line_says_what_to_give(arguments: list[str], message: str, cli: Any) -> None:
    done = cli("ask", "Who?", *arguments, code=2)
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "hunter2" not in done.output


class Shelf:
    """An action that finds the same every time."""

    def __init__(self, name: str, *finds: str | Exception) -> None:
        self.name, self.description = name, f"the {name}"
        self.finds, self.asked = finds, 0

    async def retrieve(self, request: ActionRequest) -> list[Document]:
        self.asked += 1
        for found in self.finds:
            if isinstance(found, Exception):
                raise found
        return [Document(str(text), id=f"{self.name}-{n}") for n, text in enumerate(self.finds)]


FOUNDED = "The Tay Bridge was opened in 1878."
OFF_TOPIC = "Sparsemax maps onto the simplex."


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(
    ("shelves", "asked", "answered_by"),
    [
        ([("a", FOUNDED), ("b", FOUNDED), ("c",)], [1, 0, 0], "a"),
        ([("a", OFF_TOPIC), ("b", FOUNDED), ("c", FOUNDED)], [1, 1, 0], "b"),
        ([("a",), ("b", OFF_TOPIC), ("c", FOUNDED)], [1, 1, 1], "c"),
        ([("a", TimeoutError("too late")), ("b", FOUNDED), ("c",)], [1, 1, 0], "b"),
        ([("a", OFF_TOPIC), ("b", ActionInputError("needs arguments")), ("c", FOUNDED)], [1, 1, 1], "c"),
        ([("a", OFF_TOPIC), ("b",), ("c", ActionInputError("needs arguments"))], [1, 1, 1], ""),
        ([("a",), ("b",), ("c", ActionInputError("needs arguments"))], [1, 1, 1], ""),
    ],
)
async def test_without_a_model_what_is_not_found_is_looked_up_elsewhere(
    shelves: list[tuple[Any, ...]], asked: list[int], answered_by: str, asynchronous: bool
) -> None:
    """One action after another, and no further one once there is an answer."""
    actions = [Shelf(*shelf) for shelf in shelves]
    out = await run(build_graph(actions=actions), "When was the Tay Bridge opened?", asynchronous)
    assert [action.asked for action in actions] == asked
    [item] = out["chain"]
    if answered_by:
        assert (item["action"], item["status"]) == (answered_by, "filled")
        assert "1878" in out["answer"]
        assert out["citations"][0]["id"] == f"{answered_by}-0"
    else:
        assert item["status"] == "unsupported"
        assert out["answer"].startswith("I found nothing")


@tool
def between(first: str, second: str) -> str:
    """Tell the distance between the Tay Bridge and another place."""
    return f"{first} to {second}: 5 km"


async def test_without_a_model_a_tool_that_needs_more_than_the_question_gives_way() -> None:
    """Only a model could write its arguments."""
    out = await run(build_graph(actions=[ToolAction(between), Shelf("b", FOUNDED)]), "When was the Tay Bridge opened?", True)
    assert out["chain"][0]["action"] == "b"
    assert "1878" in out["answer"]
