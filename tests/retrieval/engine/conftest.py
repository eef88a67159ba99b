"""A PostgreSQL with pgvector for the session, and a collection of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tests.postgres_server import pgvector_server

_NUMBERS = count()


@pytest.fixture(scope="session")
def pgvector() -> Iterator[str]:
    """The URL of the server."""
    with pgvector_server() as url:
        yield url


@pytest.fixture
def address(pgvector: str) -> str:
    """The URL of a collection that is not there yet."""
    return f"{pgvector}?collection=test_{next(_NUMBERS)}"


@pytest.fixture(scope="session")
def connection(pgvector: str) -> Iterator[Any]:
    """A connection to the server, each statement of which is committed."""
    import psycopg

    with psycopg.connect(pgvector, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        yield connection
