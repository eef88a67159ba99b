"""Options that several commands share; a command may take them as one dataclass."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Annotated, Any, get_type_hints

import typer

from langgraph_convcoa.errors import InputError, redact

INDEX_VARIABLE = "CONVCOA_INDEX"
"""Environment variable that names an index. Other users can read a command's arguments, so a password is safer here."""


def option(metavar: str | None, text: str, *names: str, **more: Any) -> Any:
    """Make an option of a command with its help text."""
    return typer.Option(*names, metavar=metavar, help=text, **more)


def argument(metavar: str, text: str, **more: Any) -> Any:
    """Make an argument of a command with its help text."""
    return typer.Argument(metavar=metavar, help=text, **more)


def panel(title: str) -> Callable[..., Any]:
    """Return a function like `option`. The help shows its options under the title, without their default values."""
    return partial(option, show_default=False, rich_help_panel=title)


Docs = Annotated[str | None, option("PATH", 'File, folder, address of a page or of a sitemap, or "demo".')]
IndexPlace = Annotated[str | None, option("DIR|URL", "An index or the address of an engine, instead of --docs.", "--index")]
Model = Annotated[
    str | None, option("NAME", 'Chat model, such as "openai:gpt-4.1-mini"; without one, extraction.', envvar="CONVCOA_MODEL")
]
BaseUrl = Annotated[
    str | None, option("URL", "The model's OpenAI-compatible server.", "--base-url", envvar="CONVCOA_BASE_URL")
]
PassageCount = Annotated[
    int | None, option("N", "Passages for each sub-question; 5 with a model, 10 without.", "-k", "--k", min=1, max=100)
]
Graph = Annotated[bool | None, option(None, "Follow names from passage to passage; done by default.", "--graph/--no-graph")]
Token = Annotated[
    str, option("TEXT", "Token that requests need; safer in the variable.", envvar="CONVCOA_TOKEN", show_default=False)
]
AllowHost = Annotated[list[str] | None, option("NAME", "A name under which clients reach the server; may be repeated.")]
AsJson = Annotated[bool, option(None, "Print the result as JSON and nothing else on standard output.", "--json")]
MaxMb = Annotated[float, option("N", "The most text to read, in megabytes.", "--max-mb", min=0.001, max=1e6)]
NoCache = Annotated[bool, option(None, "Neither read nor write the cache of encoded documents.", "--no-cache")]


@dataclass(frozen=True)
class ConversationOptions:
    """The options of a conversation: its sources, model and store."""

    docs: Docs = None
    index: IndexPlace = None
    data: Annotated[list[str] | None, option("FILE|URL", "Tables: files, a folder, a database URL; may be repeated.")] = None
    web: Annotated[bool, option(None, "Look things up on the web too.", "--web")] = False
    search: Annotated[str | None, option("PROVIDER", "How --web searches: ddgs, tavily, google, URL of a SearXNG.")] = None
    model: Model = None
    base_url: BaseUrl = None
    thread: Annotated[str | None, option("T", "Conversation to continue or to begin; kept without --store too.")] = None
    store: Annotated[str | None, option("FILE|URL", "SQLite file or postgresql:// address.", envvar="CONVCOA_STORE")] = None
    k: PassageCount = None
    graph: Graph = None
    threshold: Annotated[float | None, option("T", "Probability above which a guess is kept.", min=0.0, max=1.0)] = None
    approve: Annotated[list[str] | None, option("NAME", "Ask before an action, plan or answer; may be repeated.")] = None
    max_mb: MaxMb = 50.0
    no_cache: NoCache = False

    def words(self) -> list[str]:
        """The options as words of a command, without --thread and --store. Secrets are hidden."""
        words: list[str] = []
        for field in fields(self):
            given = getattr(self, field.name)
            if field.name in ("thread", "store") or given == field.default:
                continue
            name = field.name.replace("_", "-")
            if isinstance(given, bool):
                words.append(f"--{'' if given else 'no-'}{name}")
                continue
            for value in given if isinstance(given, list) else [given]:
                words += [f"--{name}", redact(str(value))]
        return words

    def check(self, command: str) -> None:
        """Raise InputError if options contradict each other or name no source."""
        self.check_sources()
        if self.approve and not sys.stdin.isatty():
            raise InputError("--approve asks at the terminal: run it there, or in a program with the setting `approve`")
        if not (self.docs or named_index(self.docs, self.index) or self.data or self.web):
            raise InputError(
                f"nothing to look things up in: write convcoa {command} --docs PATH (--docs demo for the demonstration's), "
                "--data TABLES, or --web"
            )

    def check_sources(self) -> None:
        """Raise InputError if options contradict each other."""
        if self.search and not self.web:
            raise InputError("--search needs --web: it says how the web is searched")
        if self.base_url and not self.model:
            raise InputError("--base-url needs --model: give the name under which that server knows its model")


def named_index(docs: object, index: str | None) -> str | None:
    """The index that `--index` names. Without --docs and --index, the index in the variable CONVCOA_INDEX."""
    return index or (None if docs else os.environ.get(INDEX_VARIABLE)) or None


def grouped(*groups: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Turn the fields of dataclasses into options of a command. The command gets the filled dataclasses first."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        options: list[inspect.Parameter] = []
        for group in groups:
            hints, fields_ = get_type_hints(group, include_extras=True), inspect.signature(group).parameters
            options += [parameter.replace(annotation=hints[name]) for name, parameter in fields_.items()]
        own = list(inspect.signature(command, eval_str=True).parameters.values())[len(groups) :]

        def run(**given: Any) -> None:
            made = [group(**{name: given.pop(name) for name in inspect.signature(group).parameters}) for group in groups]
            command(*made, **given)

        parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*options, *own)]
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return decorate


def names_of(text: str) -> list[str]:
    """Split a text into names at its commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def proper_text(argument: str) -> str:
    """An argument as valid Unicode. Bytes that are not UTF-8 arrive as lone surrogates and are replaced."""
    return argument.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
