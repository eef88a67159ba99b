from __future__ import annotations

import os
import pickle
from dataclasses import is_dataclass
from functools import partial

import pytest

from langgraph_convcoa.cli.documents import place_of
from langgraph_convcoa.errors import InputError, RetrievalError
from langgraph_convcoa.retrieval.engine.choose import open_engine
from langgraph_convcoa.retrieval.engine.load import Opener
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
@pytest.mark.parametrize("password", ["p@ssw0rd", "12/ssw0rd", "12345/p@ssw0rd", "12#ssw0rd", "12#p@ssw0rd"])
def test_of_a_password_that_is_not_spelled_as_it_must_be_nothing_is_shown(scheme, password):
    with pytest.raises(InputError, match="is written %40, %2F or %23") as told:
        open_engine(f"{scheme}://ann:{password}@db.invalid/db", collection="m")
    assert "ssw0rd" not in str(told.value)
    assert place_of(f"{scheme}://ann:{password}@db.invalid/db") == f"{scheme}://..."


@pytest.mark.parametrize("scheme", ["postgresql", "milvus"])
def test_workers_elsewhere_get_the_password_of_the_environment_and_no_picture_of_it_is_shown(scheme, monkeypatch):
    variable, other = {"postgresql": ("PGPASSWORD", "MILVUS_TOKEN"), "milvus": ("MILVUS_TOKEN", "PGPASSWORD")}[scheme]
    monkeypatch.setenv(variable, "of-the-driver")
    monkeypatch.setenv(other, "of-no-use")
    opened = partial(open_engine, f"{scheme}://ann:hunter22@db.invalid/db?collection=m")
    opener = Opener(opened, opened().variables)
    # Ray's export of a data set writes `str` of arguments, and the fields of dataclasses.
    assert not any(secret in f"{opener!r} {opener}" for secret in ("hunter22", "of-the-driver"))
    assert not is_dataclass(opener)
    sent = pickle.dumps(opener)
    assert b"of-no-use" not in sent
    for kept in (None, "of-the-worker"):
        if kept is None:
            monkeypatch.delenv(variable)
        else:
            monkeypatch.setenv(variable, kept)
        assert pickle.loads(sent)().name == opened().name
        assert os.environ[variable] == (kept or "of-the-driver")


@pytest.mark.parametrize(
    ("address", "module", "extra"),
    [
        ("postgresql://u@db.invalid/x?collection=c", "postgres.connections", "pgvector"),
        ("milvus://u@db.invalid/x?collection=c", "milvus.engine", "milvus"),
        ("milvus+file:///tmp/x.db?collection=c", "milvus.engine", "milvus"),
    ],
)
def test_an_address_without_its_extra_names_the_extra(address, module, extra, monkeypatch):
    monkeypatch.setattr(f"langgraph_convcoa.retrieval.engine.{module}.find_spec", lambda _name: None)
    with pytest.raises(RetrievalError, match=rf'pip install "langgraph-convcoa\[{extra}\]"'):
        open_engine(address)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("postgresql://u:hunter22@localhost/x", "names no collection"),
        ("postgresql://u:hunter22@localhost:12x/x?collection=c", "cannot be read"),
        ("postgresql://u:hunter22@[::1/x?collection=c", "cannot be read"),
        ("postgresql://u:hunter22@localhost/x?collection=c&nonsense=hunter22", "cannot be read"),
        ("postgresql://u:hunter22@localhost/x?collection=Dr%20o%27p", "cannot be used"),
        ("postgresql://u:hunter22@localhost/x?collection=c&tenant=", "tenant must be"),
        ("postgresql://u:hunter22@localhost/x?collection=c&tenant=%00", "NUL"),
        ("mongodb://u:hunter22@localhost/x?collection=c", "not the address of an engine"),
        ("milvus://u:hunter22@localhost/x", "names no collection"),
        ("milvus://u:hunter22@localhost:12x/x?collection=c", "cannot be read"),
        ("milvus://u:hunter22@[::1/x?collection=c", "cannot be read"),
        ("milvus://u:hunter22@localhost/x/y?collection=c", "cannot be read"),
        ("milvuss://u:hunter22@/x?collection=c", "cannot be read"),
        ("milvus://u:hunter22@localhost/x?collection=c&nonsense=hunter22", "cannot be read"),
        ("milvus://u:hunter22@localhost/x?collection=c&exact=0", "cannot be read"),
        ("milvus+file:///tmp/hunter22?collection=c", "cannot be read"),
        ("milvus://u:hunter22@localhost/x?collection=Dr%20o%27p", "cannot be used"),
        ("milvus://u:hunter22@localhost/x?collection=c&tenant=", "tenant must be"),
        ("milvus://u:hunter22@localhost/x?collection=c&tenant=%00", "NUL"),
    ],
)
def test_an_address_that_cannot_be_used_is_said_without_its_password(address, message):
    with pytest.raises(InputError, match=message) as told:
        open_engine(address)
    assert "hunter22" not in str(told.value)
