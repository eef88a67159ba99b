"""The options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
IndexFolder = Annotated[
    Path | None,
    typer.Option("--index", metavar="DIR", help="An index that `convcoa index` made, instead of --docs.", show_default=False),
]
Data = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE|URL",
        help="Tables to query: .csv .tsv .parquet .xlsx .json .sqlite .duckdb, a folder, or a database URL; may be repeated.",
        show_default=False,
    ),
]
Web = Annotated[bool, typer.Option("--web", help="Look things up on the web too.")]
Search = Annotated[
    str | None,
    typer.Option(
        metavar="PROVIDER",
        help="How --web searches: ddgs (no key; the default), tavily, google, or the address of a SearXNG.",
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
Thread = Annotated[
    str | None,
    typer.Option(
        metavar="T",
        help="Which conversation to go on with, or to begin; kept in the user's own store where no --store is given.",
        show_default=False,
    ),
]
Store = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|URL",
        envvar="CONVCOA_STORE",
        help="SQLite file, made when missing, or postgresql:// address that keeps conversations.",
        show_default=False,
    ),
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
Threshold = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=1.0,
        metavar="T",
        help="Faith score above which a guess is kept; calibrated by default.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else on standard output.")]
MaxMb = Annotated[
    float, typer.Option("--max-mb", min=0.001, max=1e6, metavar="N", help="The most text to read, in megabytes.")
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Neither read nor write the cache of encoded documents.")]


def search_of(web: bool, search: str | None) -> str | None:
    """The search that `--web` and `--search` name; None without `--web`.

    Raises:
        InputError: `--search` is given without `--web`.
    """
    if search and not web:
        raise InputError("--search needs --web: it says how the web is searched")
    return (search or "ddgs") if web else None
