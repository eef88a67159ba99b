"""The `convcoa` command and its sub-commands. An error ends a command with one line and an exit code."""

from __future__ import annotations

import gc
import logging
import os
import re
import sys
import tomllib
import traceback
from importlib import import_module
from importlib.resources import files
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from langgraph_convcoa.cli.console import report, warn
from langgraph_convcoa.errors import ConvCoAError, InputError

USER_ERROR = 2
INTERNAL_ERROR = 1
INTERRUPTED = 130

_COMMANDS = {
    **{"ask": "chat", "chat": "chat", "serve": "serve", "mcp": "serve", "demo": "chat", "search": "index", "index": "index"},
    **dict.fromkeys(("train", "train-verifier", "train-planner"), "train"),
    **{"evaluate": "evaluate", "threads": "threads"},
}  # The module of each command, in the order of the help. A module is imported when its command is called.


class _WarningLines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())


class _ErrorLineGroup(TyperGroup):
    """Prints errors of commands and warnings of the library on standard error, each in one line."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands:
            # For an unknown name, all commands are loaded, so that the error can suggest a similar name.
            for name in [cmd_name] if cmd_name in _COMMANDS else _COMMANDS:
                self.add_command(_command(name), name)
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: Any) -> Any:
        handler = _WarningLines(logging.WARNING)
        library = logging.getLogger("langgraph_convcoa")
        library.addHandler(handler)
        for chatty in ("pypdf", "trafilatura", "htmldate", "courlan", "sqlglot"):
            logging.getLogger(chatty).setLevel(logging.ERROR)
        try:
            return super().invoke(ctx)
        except ConvCoAError as error:
            report(error)
            raise typer.Exit(USER_ERROR) from error
        except KeyboardInterrupt as error:
            typer.echo("interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from error
        except MemoryError as error:
            typer.echo("error: out of memory: give fewer documents", err=True)
            raise typer.Exit(USER_ERROR) from error
        except Exception as error:
            if instead := _use_instead(error):
                report(InputError(instead))
                raise typer.Exit(USER_ERROR) from error
            # Typer handles usage errors, exits and broken pipes.
            usual = hasattr(error, "exit_code") or isinstance(error, typer.Abort | BrokenPipeError)
            if usual or os.environ.get("CONVCOA_TRACEBACK"):
                raise
            # Show only the type and the place of the error: its message could hold a key.
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}"
            typer.echo(f"error: internal error ({where}): please report it with what CONVCOA_TRACEBACK=1 shows", err=True)
            raise typer.Exit(INTERNAL_ERROR) from error
        finally:
            library.removeHandler(handler)


app = typer.Typer(
    name="convcoa",
    cls=_ErrorLineGroup,
    help="Ask your documents questions, in conversation; every answer verified and cited.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _use_instead(error: Exception) -> str:
    """The advice for an error of typer about a removed command or option; "" for other errors."""
    context: Any = getattr(error, "ctx", None)
    if context is None:
        return ""
    option = getattr(error, "option_name", None)
    table = tomllib.loads(files(__package__).joinpath("removed.toml").read_text(encoding="utf-8"))
    removed = {name: instead for instead, names in table.items() for name in names}
    # The name of an unknown command is only in the message.
    for name in [option] if option else re.findall(r"'([\w-]+)'", str(getattr(error, "message", ""))):
        command = name if context.parent is None else f"{context.info_name} {name}"
        if command in removed:
            return f"{option or f'convcoa {command}'} was removed: {removed[command]}"
    return ""


def _command(name: str) -> Any:
    """Import the module of a command, and return the command or the group of commands in it."""
    module = import_module(f"langgraph_convcoa.cli.{_COMMANDS[name]}")
    if (commands := getattr(module, "app", None)) is not None:
        group = get_group(commands)
        group.name = name
        return group
    alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
    alone.command(name)(getattr(module, name.replace("-", "_")))
    return get_command(alone)


def main() -> None:
    """Entry point of the command."""
    import warnings

    # By default, garbage is collected after 700 new objects. This takes a fifth of the time that a command needs to start.
    gc.set_threshold(50_000, *gc.get_threshold()[1:])
    # Waiting threads of torch must not spin: they slow a busy machine. Torch reads both variables when it is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    if sys.stdin is None:
        # The caller closed standard input. An empty file replaces it.
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 - for as long as the program runs
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    app()


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"convcoa {version('langgraph-convcoa')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    pass
