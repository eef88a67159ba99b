"""The `convcoa` command and its sub-commands. An error ends a command with one line and an exit code."""

from __future__ import annotations

import gc
import logging
import os
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from langgraph_convcoa.cli.console import report, warn
from langgraph_convcoa.cli.removed import explain_removed
from langgraph_convcoa.errors import ConvCoAError

USER_ERROR = 2
INTERNAL_ERROR = 1
INTERRUPTED = 130

# In the order of the help. The module of a command is imported when the command is called.
_COMMANDS = (
    *("ask", "chat", "serve", "mcp", "demo", "search", "index"),
    *("train", "train-verifier", "train-planner", "evaluate", "threads"),
)
# New objects between garbage collections. With the usual 700, collections take a fifth of a command's start.
_NEW_OBJECTS = 50_000


class _WarningLines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())


class _ErrorLineGroup(TyperGroup):
    """Prints an error of a command as one line on standard error, and each warning of the library too."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands:
            # For an unknown name all commands are loaded: the error suggests a similar one.
            for name in [cmd_name] if cmd_name in _COMMANDS else _COMMANDS:
                if name not in self.commands:
                    self.add_command(_command(name), name)
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: Any) -> Any:
        handler = _WarningLines(logging.WARNING)
        library = logging.getLogger("langgraph_convcoa")
        library.addHandler(handler)
        for chatty in ("pypdf", "trafilatura", "htmldate", "courlan", "sqlglot"):
            logging.getLogger(chatty).setLevel(logging.ERROR)
        try:
            with explain_removed():
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
            # Typer handles usage errors, exits and broken pipes.
            if hasattr(error, "exit_code") or isinstance(error, typer.Abort | BrokenPipeError):
                raise
            if os.environ.get("CONVCOA_TRACEBACK"):
                raise
            # Only the type and the place: the message could hold a key.
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


def _command(name: str) -> Any:
    """Import the module of a command, and return the command or the group of commands in it."""
    home = name.replace("-", "_")
    module = import_module(f"langgraph_convcoa.cli.{home}")
    if (commands := getattr(module, "app", None)) is not None:
        group = get_group(commands)
        group.name = name
        return group
    alone = typer.Typer(add_completion=False, rich_markup_mode="rich")
    alone.command(name)(getattr(module, home))
    return get_command(alone)


def main() -> None:
    """Entry point of the command."""
    import warnings

    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])
    # Torch threads that spin while they wait slow each other down on a busy machine. Torch reads this when it is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    if sys.stdin is None:
        # The caller closed it: the input is empty.
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 - for as long as the program runs
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
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
