"""Opens the engine that an address names."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlsplit

from langgraph_convcoa.errors import InputError, is_ambiguous
from langgraph_convcoa.retrieval.engine.base import Engine
from langgraph_convcoa.retrieval.engine.milvus import engine as milvus
from langgraph_convcoa.retrieval.engine.postgres.engine import PostgresEngine

SCHEMES = ("postgresql", "postgres", *milvus.SCHEMES)  # Schemes of engine addresses.
_OURS = ("collection", "tenant", "exact", "build_memory")
_FORM = "postgresql://user@host:5432/database?collection=NAME&tenant=NAME"


def is_engine(address: object) -> bool:
    """True for the address of an engine, False for a path.

    Example:
        >>> is_engine("postgresql://localhost/docs?collection=manuals"), is_engine("indexes/manuals")
        (True, False)
    """
    return isinstance(address, str) and address.partition("://")[0].lower() in SCHEMES and "://" in address


def is_unclear(address: str) -> bool:
    """True if an engine's address may be split inside its password, a part of which would be shown as the host."""
    return "#" in address or (is_ambiguous(address) and not address.lower().startswith("milvus+file:"))


def open_engine(address: str, *, collection: str | None = None, tenant: str | None = None, timeout: float = 10.0) -> Engine:
    """Make the engine of an address, without contacting its server.

    Args:
        address: postgresql://user@host:5432/database, milvus://user@host:19530/database, milvuss:// for TLS, or
            milvus+file:///folder/name.db, with the parameters `collection`, `tenant` and, for PostgreSQL, `exact` and
            `build_memory` (`PostgresEngine`).
        collection: Replaces the collection in the address.
        tenant: Replaces the tenant in the address; "default" if neither names a tenant.
        timeout: Seconds to wait for an answer; then an error is raised.

    Raises:
        InputError: The address is malformed, or names no engine or no collection.
        RetrievalError: The engine needs an extra that is not installed.

    Example:
        >>> open_engine("postgresql://localhost/docs?collection=manuals")
        PostgresEngine(collection='manuals', tenant='default')
    """
    if not is_engine(address):
        raise InputError(f"This is not the address of an engine; write it {_FORM}.")
    try:
        parts = urlsplit(address)
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        # A malformed part may be a password: it is not shown.
        raise InputError(f"The address of the engine cannot be read; write it {_FORM}.") from None
    names = _OURS[:2] if parts.scheme in milvus.SCHEMES else _OURS
    ours = {name: value for name, value in options if name in names}
    named = ours.get("collection", "") if collection is None else collection
    if not named:
        raise InputError(f"The address of the engine names no collection; write it {_FORM}.")
    if is_unclear(address):
        raise InputError("An @, / or # within the name or the password of an address is written %40, %2F or %23.")
    # The other options stay as written: drivers do not read + as a space, and need the address's two slashes.
    rest = "&".join(piece for piece in parts.query.split("&") if piece.partition("=")[0] not in ours)
    plain = address.partition("?")[0] + (f"?{rest}" if rest else "")
    whose = ours.get("tenant", "default") if tenant is None else tenant
    if parts.scheme in milvus.SCHEMES:
        return milvus.MilvusEngine(plain, collection=named, tenant=whose, timeout=timeout)
    more: dict[str, Any] = {name: value for name, value in ours.items() if name == "build_memory"}
    if "exact" in ours:
        if not ours["exact"].isdecimal():
            raise InputError("`exact` in the address of the engine must be a number of passages.")
        more["exact"] = int(ours["exact"])
    return PostgresEngine(plain, collection=named, tenant=whose, timeout=timeout, **more)
