from __future__ import annotations

import pytest

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.engine.choose import open_engine
from langgraph_convcoa.retrieval.engine.postgres import engine as postgres


@pytest.mark.parametrize(
    ("address", "driver"),
    [
        ("postgresql:///docs?collection=m&host=/var/run/postgresql", "postgresql:///docs?host=/var/run/postgresql"),
        ("postgresql:///docs?collection=m", "postgresql:///docs"),
        ("postgresql://db/docs?options=-c%20a%3Db&collection=m&tenant=t", "postgresql://db/docs?options=-c%20a%3Db"),
    ],
)
def test_the_driver_gets_the_rest_of_an_address_as_it_was_written(address, driver, monkeypatch):
    given = []
    monkeypatch.setattr(postgres, "Connections", lambda address, **_: given.append(address))
    open_engine(address)
    assert given == [driver]


@pytest.mark.parametrize("scheme", ["postgresql", "milvus"])
@pytest.mark.parametrize("password", ["p@ssw0rd", "12/ssw0rd", "12345/p@ssw0rd"])
def test_of_a_password_that_holds_an_at_sign_nothing_is_shown(scheme, password):
    with pytest.raises(InputError, match="is written %40") as told:
        open_engine(f"{scheme}://ann:{password}@db.invalid/db?collection=m")
    assert "ssw0rd" not in str(told.value)
