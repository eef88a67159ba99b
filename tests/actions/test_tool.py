"""Any LangChain tool as an action: arguments in, documents out, errors that a model can mend."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from langchain_core.documents import Document
from langchain_core.tools import StructuredTool, ToolException, tool

from langgraph_convcoa.actions.base import ActionInputError, ActionRequest
from langgraph_convcoa.actions.tool import ToolAction
from langgraph_convcoa.errors import InputError


@tool
def population(city: str) -> str:
    """The population of a city."""
    if city == "Atlantis":
        raise ToolException("there is no such city")
    return f"{city} has 9 million inhabitants."


@tool
async def weather(city: str, days: int = 1, unit: Literal["C", "F"] = "C") -> dict[str, Any]:
    """The weather of a city. Several days."""
    return {"city": city, "days": days, "unit": unit}


@tool(response_format="content_and_artifact")
def archive(query: str) -> tuple[str, list[Document]]:
    """Searches the archive."""
    return "2 documents", [Document(f"About {query}.", id="a"), Document("More.", id="b")]


def mcp_tool() -> StructuredTool:
    """A tool as langchain-mcp-adapters makes them: async only, a JSON schema, content blocks."""

    async def call(**arguments: Any) -> Any:
        return [{"type": "text", "text": f"result of {arguments}"}], {"structured_content": None}

    schema = {
        "type": "object",
        "properties": {"q": {"type": "string", "description": "what"}, "n": {"type": "integer"}},
        "required": ["q"],
    }
    shape: dict[str, Any] = {"args_schema": schema, "response_format": "content_and_artifact"}
    return StructuredTool(name="my-server.find it", description="Finds.", coroutine=call, **shape)


async def call(action: ToolAction, given: str = "", question: str = "How many live in London?") -> list[Document]:
    return await action.retrieve(ActionRequest("?", question, action_input=given))


async def test_a_tool_of_one_text_takes_it_plainly_or_as_json() -> None:
    action = ToolAction(population)
    for given in ("London", '{"city": "London"}'):
        [found] = await call(action, given)
        assert found.page_content == "London has 9 million inhabitants."
        assert found.metadata["source"] == 'population(city="London")'


async def test_a_whole_question_goes_to_a_tool_that_takes_one_and_to_no_other() -> None:
    found = await call(ToolAction(archive))
    assert found[0].page_content == "About How many live in London?."
    with pytest.raises(ActionInputError, match=r"no input was written for the tool population; action_input: the city"):
        await call(ToolAction(population))


async def test_an_async_tool_takes_arguments_as_json() -> None:
    action = ToolAction(weather)
    assert action.description == (
        "The weather of a city. Several days; action_input: a JSON object with city (string), days (integer, optional), "
        "unit (string, optional: one of C, F)"
    )
    [found] = await call(action, '{"city": "Rome", "days": 3}')
    assert found.page_content == '{"city": "Rome", "days": 3, "unit": "C"}'


async def test_documents_among_the_result_are_evidence_one_by_one() -> None:
    found = await call(ToolAction(archive), "bees")
    assert [document.id for document in found] == ["a", "b"]
    assert found[0].page_content == "About bees."


async def test_a_tool_of_an_mcp_server() -> None:
    action = ToolAction(mcp_tool())
    assert action.name == "my-server_find_it"
    [found] = await call(action, '{"q": "x", "n": 2}')
    assert found.page_content == "result of {'q': 'x', 'n': 2}"
    with pytest.raises(ActionInputError, match="unknown argument 'z'"):
        await call(action, '{"q": "x", "z": 2}')


handling = StructuredTool.from_function(population.func, name="p", description="d", handle_tool_error=True)


@pytest.mark.parametrize(
    ("tool", "given", "message"),
    [
        (weather, '{"days": 2}', "lacks 'city'"),
        (weather, '{"city": "Rome", "days": "many"}', "days: Input should be a valid integer"),
        (weather, '{"city": ', "no valid JSON"),
        (population, "Atlantis", "failed: there is no such city"),
        (handling, "Atlantis", "no such city"),
    ],
)
async def test_what_a_model_can_mend_says_how(tool: Any, given: str, message: str) -> None:
    with pytest.raises(ActionInputError, match=message):
        await call(ToolAction(tool), given)


async def test_a_long_text_is_cut_and_an_empty_one_is_no_evidence() -> None:
    @tool
    def text(kind: str) -> str:
        """Text."""
        return "x" * 100_000 if kind == "long" else "  "

    [found] = await call(ToolAction(text), "long")
    assert found.page_content == "x" * 20_000 + "\n(cut off)"
    assert await call(ToolAction(text), "empty") == []


def test_what_is_no_tool_is_refused() -> None:
    with pytest.raises(InputError, match="wrap a function"):
        ToolAction(print)  # type: ignore[arg-type]
