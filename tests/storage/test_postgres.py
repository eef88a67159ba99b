"""What is shown of a PostgreSQL store where it fails; nothing listens at the addresses."""

from __future__ import annotations

import pytest

from langgraph_convcoa.errors import StoreError
from langgraph_convcoa.storage import open_store
from tests.loopback import unused_port

psycopg = pytest.importorskip("psycopg")
pytest.importorskip("psycopg_pool")
pytest.importorskip("langgraph.checkpoint.postgres")

PARTS = ("hunter", "sw0rdfish", "4711")


@pytest.fixture(scope="module")
def port() -> int:
    return unused_port()


@pytest.mark.parametrize(
    ("address", "password"),
    [
        ("postgresql://me:hunter@sw0rdfish@127.0.0.1:{port}/db", None),
        ("postgresql://me:hunter@sw0rdfish@4711@127.0.0.1:{port}/db", None),
        ("postgresql://me:4711/sw0rdfish@127.0.0.1:{port}/db", None),
        ("postgresql://me:4711?sw0rdfish@127.0.0.1:{port}/db", "4711?sw0rdfish"),
        ("postgresql://me:hunter%40sw0rdfish@127.0.0.1:{port}/db", "hunter@sw0rdfish"),
        ("postgresql://me@127.0.0.1:{port}/db?password=hunter@sw0rdfish", "hunter@sw0rdfish"),
    ],
)
def test_a_password_with_an_at_is_in_no_message(address: str, password: str | None, port: int) -> None:
    """Where it is not written %40, the driver would take a part of it for the host: that is said before it is asked."""
    store = open_store(address.format(port=port))
    with pytest.raises(StoreError) as told:
        store.check()
    # As a driver might say it, at any later moment.
    later = store.error(psycopg.OperationalError(f"no entry for me:{password or PARTS[1]}, {password or PARTS[1]}@db"))
    for shown in (str(told.value), str(later), repr(store), store.label):
        assert not any(part in shown for part in PARTS), shown
    assert ("is malformed" in str(told.value)) == (password is None)
    assert told.value.__cause__ is None or not any(part in str(told.value.__cause__) for part in PARTS)
