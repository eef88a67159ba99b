"""Options that several commands share; a command may take them as one dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from langgraph_convcoa.errors import InputError

DEFAULT_MAX_MB = 50.0


Docs = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help='File or folder of .txt .md .html .pdf .csv .json .jsonl(.gz); "demo" for the documents of the demonstration.',
    ),
]
IndexFolder = Annotated[
    Path | None, typer.Option("--index", metavar="DIR", help="An index that `convcoa index` made, instead of --docs.")
]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help='Chat model, such as "openai:gpt-4.1-mini". Without one, answers are extracted offline.',
        envvar="CONVCOA_MODEL",
    ),
]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        "--base-url", metavar="URL", help="An OpenAI-compatible server that has the model.", envvar="CONVCOA_BASE_URL"
    ),
]
PassageCount = Annotated[
    int | None,
    typer.Option("-k", "--k", metavar="N", help="Passages a sub-question; 5 with a model, 10 without.", min=1, max=100),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else on standard output.")]
MaxMb = Annotated[
    float, typer.Option("--max-mb", min=0.001, max=1e6, metavar="N", help="The most text to read, in megabytes.")
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Neither read nor write the cache of encoded documents.")]


@dataclass(frozen=True)
class ConversationOptions:
    """The options of a conversation: its sources, its model, and where it is kept."""

    docs: Docs = None
    index: IndexFolder = None
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE|URL",
            help="Tables to query: .csv .tsv .parquet .xlsx .json .sqlite .duckdb, a folder, a database URL; may be repeated.",
        ),
    ] = None
    web: Annotated[bool, typer.Option("--web", help="Look things up on the web too.")] = False
    search: Annotated[
        str | None,
        typer.Option(
            metavar="PROVIDER",
            help="How --web searches: ddgs (no key; the default), tavily, google, or the address of a SearXNG.",
        ),
    ] = None
    model: Model = None
    base_url: BaseUrl = None
    thread: Annotated[
        str | None,
        typer.Option(
            metavar="T",
            help="Which conversation to continue, or to begin; kept in the user's own store where no --store is given.",
        ),
    ] = None
    store: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL",
            help="SQLite file, made when missing, or postgresql:// address that keeps conversations.",
            envvar="CONVCOA_STORE",
        ),
    ] = None
    k: PassageCount = None
    threshold: Annotated[
        float | None,
        typer.Option(metavar="T", help="Faith score above which a guess is kept; calibrated by default.", min=0.0, max=1.0),
    ] = None
    max_mb: MaxMb = DEFAULT_MAX_MB
    no_cache: NoCache = False

    def check(self, command: str) -> None:
        """Raise InputError where options contradict each other, or name nothing to look things up in."""
        if self.search and not self.web:
            raise InputError("--search needs --web: it says how the web is searched")
        if self.base_url and not self.model:
            raise InputError("--base-url needs --model: give the name under which that server knows its model")
        if not (self.index or self.docs or self.data or self.web):
            raise InputError(
                f"nothing to look things up in: write convcoa {command} --docs PATH (--docs demo for the demonstration's), "
                "--data TABLES, or --web"
            )


Settings = TypeVar("Settings")


def grouped(settings: type[Settings]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make each field of a dataclass an option of a command, whose first parameter is then an object of the dataclass."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(settings, include_extras=True)
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        options = [
            parameter.replace(annotation=hints[name]) for name, parameter in inspect.signature(settings).parameters.items()
        ]

        def run(**given: Any) -> None:
            command(settings(**{option.name: given.pop(option.name) for option in options}), **given)

        parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*options, *own)]
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return decorate


def names_of(text: str) -> list[str]:
    """The names in a text with commas between them.

    Example:
        >>> names_of("ours, react,")
        ['ours', 'react']
    """
    return [name.strip() for name in text.split(",") if name.strip()]


def proper_text(argument: str) -> str:
    """An argument as proper Unicode; bytes that are none come as lone surrogates."""
    return argument.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
