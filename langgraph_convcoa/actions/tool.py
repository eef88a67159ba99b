"""Any LangChain tool, including MCP tools, as an action."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, ToolException
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import ValidationError

from langgraph_convcoa.actions.base import ActionInputError, ActionRequest, BaseAction
from langgraph_convcoa.errors import InputError

_LONGEST_TEXT = 20_000
_TAKES_A_QUESTION = frozenset(
    "query question q search search_query search_term text input tool_input prompt message keywords __arg1".split()  # noqa: SIM905
)  # Names of arguments that take a whole question.


class ToolAction(BaseAction):
    """Calls a tool; its result is the evidence.

    The planner reads the tool's description and arguments and writes the `action_input`: a JSON object, or the text for a tool
    with one text argument. Without an input, a tool that takes a question or a search text gets the sub-question. The model
    rewrites refused arguments, once a turn. Each returned document is a piece of evidence; anything else is one document of at
    most 20,000 characters. The planner may call the tool at any time, so give only tools that change nothing.

    Args:
        tool: A LangChain tool, plain or async.
        name: The action's name for the planner and the chain; by default the tool's.
        description: What the planner reads, in front of the arguments; by default the tool's description.

    Raises:
        InputError: `tool` is no LangChain tool.

    Example:
        >>> import asyncio
        >>> from langchain_core.tools import tool
        >>> @tool
        ... def population(city: str) -> str:
        ...     "The population of a city."
        ...     return f"{city} has 9 million inhabitants."
        >>> action = ToolAction(population)
        >>> action.description
        'The population of a city; action_input: the city (string)'
        >>> [found] = asyncio.run(action.retrieve(ActionRequest("?", "How many live in London?", action_input="London")))
        >>> found.page_content, found.metadata["source"]
        ('London has 9 million inhabitants.', 'population(city="London")')
    """

    repairs = True

    def __init__(self, tool: BaseTool, *, name: str | None = None, description: str | None = None) -> None:
        if not isinstance(tool, BaseTool):
            raise InputError(
                f"the tool must be a LangChain tool, not {type(tool).__name__}: wrap a function with langchain_core.tools.tool"
            )
        self.tool = tool
        self.name = name or action_name(tool.name)
        self._arguments = _arguments(tool)
        names = [name for name, about in self._arguments.items() if about["required"]] or list(self._arguments)
        plain = len(names) == 1 and self._arguments[names[0]]["type"] in ("string", "any")
        # The single argument that takes a plain text.
        self._text_argument = names[0] if plain else None
        listed = ", ".join(
            f"{name} ({about['type']}{'' if about['required'] else ', optional'}{about['note']})"
            for name, about in self._arguments.items()
        )
        form = f"the {listed}" if plain and len(self._arguments) == 1 else f"a JSON object with {listed}"
        self._asked_for = f"; action_input: {form}" if listed else ""
        told = " ".join((description or tool.description or tool.name).split())[:1_000].rstrip(". ")
        self.description = f"{told}{self._asked_for}"

    async def retrieve(self, request: ActionRequest) -> list[Document]:
        """Call the tool. Raises ActionInputError if the tool does not accept the input, or reports a failure."""
        arguments = self._filled_in(request)
        call = {"type": "tool_call", "name": self.tool.name, "args": arguments, "id": f"convcoa-{self.name}"}
        try:
            message = await self.tool.ainvoke(call)
        except ValidationError as error:
            wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:3])
            raise ActionInputError(f"the tool {self.tool.name} refuses its arguments ({wrong}){self._asked_for}") from None
        except ToolException as error:
            raise ActionInputError(f"the tool {self.tool.name} failed: {error}") from None
        if isinstance(message, ToolMessage) and message.status == "error":
            raise ActionInputError(f"the tool {self.tool.name} failed: {message.text}")
        return self._evidence(message, arguments)

    def _filled_in(self, request: ActionRequest) -> dict[str, Any]:
        given = request.action_input.strip()
        if given.startswith("{"):
            try:
                arguments = json.loads(given)
            except ValueError as error:
                raise ActionInputError(f"the action input is no valid JSON ({error}){self._asked_for}") from None
            missing = [name for name, about in self._arguments.items() if about["required"] and name not in arguments]
            unknown = [name for name in arguments if name not in self._arguments]
            if missing or unknown:
                wrong = f"lacks {missing[0]!r}" if missing else f"has an unknown argument {unknown[0]!r}"
                raise ActionInputError(f"the action input {wrong}{self._asked_for}")
            return dict(arguments)
        if not self._arguments:
            return {}
        text = self._text_argument
        if text is None:
            raise ActionInputError(f"the tool {self.tool.name} needs arguments{self._asked_for}")
        if not given and text.lower() not in _TAKES_A_QUESTION:
            raise ActionInputError(
                f"no input was written for the tool {self.tool.name}{self._asked_for}; a chat model writes it"
            )
        return {text: given or request.sub_question}

    def _evidence(self, message: Any, arguments: dict[str, Any]) -> list[Document]:
        artifact = getattr(message, "artifact", None)
        given = artifact if isinstance(artifact, list) else [artifact]
        documents = [piece for piece in given if isinstance(piece, Document)]
        if documents and len(documents) == len(given):
            return documents
        text = message.text if isinstance(message, ToolMessage) else str(message)
        if not text.strip():
            return []
        if len(text) > _LONGEST_TEXT:
            text = f"{text[:_LONGEST_TEXT]}\n(cut off)"
        shown = ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in arguments.items())
        id_ = f"{self.name}:{hashlib.sha256(f'{shown} {text}'.encode('utf-8', 'replace')).hexdigest()[:12]}"
        source = f"{self.tool.name}({shown if len(shown) <= 200 else f'{shown[:200]}…'})"
        return [Document(text, id=id_, metadata={"source": source, "score": 1.0})]


def action_name(name: str) -> str:
    """Make a valid action name from any name."""
    plain = re.sub(r"[^\w-]+", "_", name).strip("_")[:64]
    return plain if plain[:1].isalpha() else f"tool_{plain}"[:64]


def _arguments(tool: BaseTool) -> dict[str, dict[str, Any]]:
    """The arguments of a tool: name -> its type, whether it is required, and a note."""
    schema = convert_to_openai_tool(tool)["function"]["parameters"]
    found = {}
    for name, about in schema.get("properties", {}).items():
        note = " ".join(str(about.get("description") or "").split())[:200]
        kind = about.get("type")
        if choices := about.get("enum"):
            note = f"{note}; " * bool(note) + "one of " + ", ".join(map(str, choices[:20]))
        found[name] = {
            "type": kind if isinstance(kind, str) else "any",
            "required": name in schema.get("required", ()),
            "note": f": {note}" if note else "",
        }
    return found
