"""The command in this process, and the line in which it fails."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from langgraph_convcoa.cli.app import app


def convcoa(
    *arguments: object, input: str | None = None, env: dict[str, str] | None = None, code: int | None = None
) -> Result:
    """Run `convcoa` with some words; `code` is the exit code that it must end with."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], input=input, env=env)
    assert code in (None, done.exit_code), done.output
    return done


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
