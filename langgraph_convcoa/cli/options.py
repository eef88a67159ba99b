"""Options that several commands share, and their grouping in a dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from langgraph_convcoa.errors import InputError

DEFAULT_K = 5
DEFAULT_MAX_MB = 50.0

Docs = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help='File or folder of .txt .md .html .pdf .csv .json .jsonl(.gz); "demo" for the documents of the demonstration.',
        show_default=False,
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        envvar="CONVCOA_MODEL",
        help='Chat model, such as "openai:gpt-4.1-mini". Without one, answers are extracted offline.',
        show_default=False,
    ),
]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        "--base-url",
        metavar="URL",
        envvar="CONVCOA_BASE_URL",
        help="An OpenAI-compatible server that has the model.",
        show_default=False,
    ),
]
IndexFolder = Annotated[
    Path | None,
    typer.Option("--index", metavar="DIR", help="An index that `convcoa index` made, instead of --docs.", show_default=False),
]
PassageCount = Annotated[
    int | None,
    typer.Option(
        "-k",
        "--k",
        min=1,
        max=100,
        metavar="N",
        help="Passages a sub-question; 5 with a model, 10 without.",
        show_default=False,
    ),
]
SearchCount = Annotated[int, typer.Option("-k", "--k", min=1, max=100, metavar="N", help="How many passages.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else on standard output.")]
MaxMb = Annotated[
    float, typer.Option("--max-mb", min=0.001, max=1e6, metavar="N", help="The most text to read, in megabytes.")
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Neither read nor write the cache of encoded documents.")]


@dataclass(frozen=True)
class ConversationOptions:
    """The options of a conversation: what it is about, who answers, and where it is kept."""

    docs: Docs = None
    index: IndexFolder = None
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE|URL",
            help="Tables to query: .csv .tsv .parquet .xlsx .json .sqlite .duckdb, a folder, a database URL; may be repeated.",
            show_default=False,
        ),
    ] = None
    web: Annotated[bool, typer.Option("--web", help="Look things up on the web too.")] = False
    search: Annotated[
        str | None,
        typer.Option(
            metavar="PROVIDER",
            help="How --web searches: ddgs (no key; the default), tavily, google, or the address of a SearXNG.",
            show_default=False,
        ),
    ] = None
    model: Model = None
    base_url: BaseUrl = None
    thread: Annotated[
        str | None,
        typer.Option(
            metavar="T",
            help="Which conversation to continue, or to begin; kept in the user's own store where no --store is given.",
            show_default=False,
        ),
    ] = None
    store: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL",
            envvar="CONVCOA_STORE",
            help="SQLite file, made when missing, or postgresql:// address that keeps conversations.",
            show_default=False,
        ),
    ] = None
    k: PassageCount = None
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            metavar="T",
            help="Faith score above which a guess is kept; calibrated by default.",
            show_default=False,
        ),
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
        hints, kind = get_type_hints(settings, include_extras=True), inspect.Parameter.KEYWORD_ONLY
        names = [field.name for field in fields(settings)]  # type: ignore[arg-type]
        options = [
            inspect.Parameter(field.name, kind, default=field.default, annotation=hints[field.name])
            for field in fields(settings)  # type: ignore[arg-type]
        ]
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

        def run(**given: Any) -> None:
            command(settings(**{name: given.pop(name) for name in names}), **given)

        parameters = [*(parameter.replace(kind=kind) for parameter in own), *options]
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return decorate


def proper_text(argument: str) -> str:
    """An argument as proper Unicode; bytes that are none come as lone surrogates."""
    return argument.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
