"""How the commands end: every error as one line on standard error, with the right exit code and never a traceback."""

from __future__ import annotations

import logging
import os
import traceback
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from langgraph_convcoa.errors import ConvCoAError

USER_ERROR = 2
INTERNAL_ERROR = 1
INTERRUPTED = 130


def warn(message: str) -> None:
    """Print a one-line warning on standard error."""
    typer.echo(f"warning: {' '.join(message.split())}", err=True)


def report(error: ConvCoAError) -> None:
    """Print an error that the user can mend, in one line on standard error."""
    typer.echo(f"error: {' '.join(str(error).split())}", err=True)


class _WarningLines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        warn(record.getMessage())


class ErrorLineGroup(TyperGroup):
    """The command group whose commands may raise what they like."""

    def invoke(self, ctx: Any) -> Any:
        handler = _WarningLines(logging.WARNING)
        library = logging.getLogger("langgraph_convcoa")
        library.addHandler(handler)
        for chatty in ("pypdf", "trafilatura", "htmldate", "courlan"):
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
            # Typer's own: usage errors, exits, and the broken pipe, which it ends quietly.
            if hasattr(error, "exit_code") or isinstance(error, typer.Abort | BrokenPipeError):
                raise
            if os.environ.get("CONVCOA_TRACEBACK"):
                raise
            # The type and the place only: a message could hold anything, a key too.
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}"
            typer.echo(f"error: internal error ({where}): please report it with what CONVCOA_TRACEBACK=1 shows", err=True)
            raise typer.Exit(INTERNAL_ERROR) from error
        finally:
            library.removeHandler(handler)
