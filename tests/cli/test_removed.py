"""What was removed says in one line what to use instead, and is not in the help."""

from __future__ import annotations

import pytest

from tests.cli.commands import convcoa, error_of


@pytest.mark.parametrize(
    ("command", "instead"),
    [
        ("train-reader data --model m", "run python -m experiments.graph_reader in a checkout"),
        ("train-reader --help", "run python -m experiments.graph_reader in a checkout"),
        ("bench encoder --runs 2", "run python -m experiments.bench in a checkout"),
        ("evaluate reader data plain", "run python -m experiments.graph_reader in a checkout"),
        ("evaluate planner data base", "run python -m experiments.planner in a checkout"),
        ("evaluate blind-score out", "run python -m experiments.blind score in a checkout"),
        ("evaluate guesses data", "run convcoa evaluate verification"),
        ("evaluate retrieval data --rewriter x", "run python -m experiments.peers DATA"),
        ("evaluate qa data --sweep k=1", "run the command once for each value"),
        ("evaluate qa data --judge-by=marks", "leave it out"),
        ("evaluate qa data --unknown-names", "run python -m experiments.unknown_names DATA"),
        ("index docs --out made --approximate", "--to URL"),
        ("index docs --out made --windows=late", "apart"),
        ("search docs q --exact", "every search is exact"),
        ("ask Who? --docs papers --collection c", "?collection=NAME&tenant=NAME"),
        ("demo --docs papers", "run convcoa chat --docs PATH"),
        ("train data --out m --full", "leave it out to train a query encoder"),
        ("train-planner data --merge m", "merge_and_unload"),
    ],
)
def test_what_was_removed_names_what_to_use_instead(command: str, instead: str) -> None:
    result = convcoa(*command.split())
    assert " was removed: " in error_of(result)
    assert instead in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("command", "gone"), [("", "train-reader"), ("evaluate", "reader"), ("index", "--approximate"), ("train", "--full")]
)
def test_the_help_does_not_name_it(command: str, gone: str) -> None:
    assert f" {gone} " not in convcoa(*command.split(), "--help").stdout


@pytest.mark.parametrize("command", ["nonsense", "evaluate nonsense", "ask q --nonsense"])
def test_what_never_was_is_wrong_usage(command: str) -> None:
    result = convcoa(*command.split(), code=2)
    assert "was removed" not in result.stderr
