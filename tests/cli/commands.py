"""The command in this process, and the line in which it fails."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from langgraph_convcoa.cli.app import app


def convcoa(*arguments: object, input: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=input)


def asked_of(place: object, question: str, what: str) -> Result:
    """What a command says to a question over an index or an engine: `what` is search, ask, docs (as `--docs`) or chat."""
    if what == "chat":
        return convcoa("chat", "--index", place, "--json", input=question)
    words = (place, question) if what == "search" else (question, f"--{what.replace('ask', 'index')}", place)
    return convcoa(what.replace("docs", "ask"), *words, "--json")


def error_of(result: Result) -> str:
    """The one line that a failed command ends with."""
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    lines = result.stderr.strip().splitlines()
    assert [line for line in lines if line.startswith("error: ")] == lines[-1:]
    return lines[-1]
