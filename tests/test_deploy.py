"""The files in `deploy/` name existing options, variables, extras and files."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
import typer
import yaml

from langgraph_convcoa.retrieval.engine.choose import open_engine
from tests import ROOT

DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "docker-compose.yml").read_text())


def test_the_workers_command_is_one_that_convcoa_takes() -> None:
    from langgraph_convcoa.cli.app import app

    words = COMPOSE["services"]["worker"]["command"]
    words = [re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", word) for word in words]
    context = typer.main.get_command(app).make_context("convcoa", words, resilient_parsing=False)
    group: Any = context.command
    name, serve, rest = group.resolve_command(context, words)
    given = serve.make_context(name, list(rest), parent=context).params
    assert (name, given["host"], given["index"]) == ("serve", "0.0.0.0", None)
    # Passages and conversations are in the same database.
    pytest.importorskip("psycopg")
    environment = COMPOSE["services"]["worker"]["environment"]
    assert "'documents' in PostgreSQL at database" in open_engine(environment["CONVCOA_INDEX"]).name
    assert environment["CONVCOA_INDEX"].partition("?")[0] == environment["CONVCOA_STORE"]
    assert f"server worker:{given['port']} " in (DEPLOY / "nginx.conf").read_text()
    # A server on every address needs a token.
    assert "CONVCOA_TOKEN" in COMPOSE["services"]["worker"]["environment"]


def test_each_variable_is_one_that_is_read_and_stands_in_the_example() -> None:
    source = "".join(path.read_text() for path in (ROOT / "langgraph_convcoa").rglob("*.py"))
    named = COMPOSE["services"]["worker"]["environment"]
    assert not [name for name in named if name.startswith("CONVCOA_") and name not in source]
    example = set(re.findall(r"^(\w+)=", (DEPLOY / "example.env").read_text(), re.MULTILINE))
    assert set(re.findall(r"\$\{(\w+)", (DEPLOY / "docker-compose.yml").read_text())) == example
    # No secret has a value.
    assert "PASSWORD=\n" in (DEPLOY / "example.env").read_text()


def test_what_is_copied_and_mounted_is_there() -> None:
    docker = (DEPLOY / "Dockerfile").read_text()
    copied = [word for line in re.findall(r"^COPY (.+) \S+$", docker, re.MULTILINE) for word in line.split()]
    assert copied
    assert not [name for name in copied if not (ROOT / name).exists()]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    [wanted] = re.findall(r'"/src\[([\w,-]+)\]"', docker)
    assert set(wanted.split(",")) <= set(extras)
    # Under another name, users' uploaded collections would be left behind by an upgrade.
    assert "documents:/data" in COMPOSE["services"]["worker"]["volumes"]
    build = COMPOSE["services"]["worker"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()
    for service in COMPOSE["services"].values():
        for volume in service.get("volumes", ()):
            place = volume.partition(":")[0]
            assert place in COMPOSE["volumes"] or (DEPLOY / place).is_file(), place
        assert set(service.get("depends_on", ())) <= set(COMPOSE["services"])
