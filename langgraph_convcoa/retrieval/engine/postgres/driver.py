"""Restrictions on the PostgreSQL driver: it must not show a password or wait for a silent server."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from langgraph_convcoa.errors import is_ambiguous

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection


def passwords_of(address: str) -> list[str] | None:
    """The passwords in an address; None for a malformed address, whose password the driver would show in its error."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        given = conninfo_to_dict(address)
    except psycopg.Error:
        return None
    ports = str(given.get("port") or "")
    if is_ambiguous(address) or ports.replace(",", "").strip("0123456789"):
        return None
    return [str(value) for name, value in given.items() if "password" in name and value]


def cut(connection: Connection[Any] | AsyncConnection[Any]) -> None:
    """End a silent connection, so that a thread waiting for it gets an error."""
    import psycopg

    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as copy:
        copy.shutdown(socket.SHUT_RDWR)
