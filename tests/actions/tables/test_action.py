"""The action over tables: formats, evidence, errors, and passwords that stay where they are."""

from __future__ import annotations

import asyncio
import datetime
import logging
import sqlite3
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document

from langgraph_convcoa.actions.base import ActionInputError, ActionRequest
from langgraph_convcoa.actions.tables.action import DataAnalysis, evidence_from
from langgraph_convcoa.actions.tables.engine import Column, Result, Table, TableError, describe
from langgraph_convcoa.errors import InputError
from langgraph_convcoa.verification.answer_check import as_claim, judge
from langgraph_convcoa.verification.premise import Evidence
from langgraph_convcoa.verification.verifier import LexicalVerifier
from tests.actions.tables.places import opened
from tests.postgres_server import PASSWORD, postgres_server

duckdb = pytest.importorskip("duckdb")
openpyxl = pytest.importorskip("openpyxl")
pytest.importorskip("sqlglot")
sqlalchemy = pytest.importorskip("sqlalchemy")

CSV = "region,year,revenue\nNorth,2019,1234.5\nSouth,2019,900\nNorth,2020,10\n"
TOTAL = "SELECT SUM(revenue) AS total FROM sales"


@pytest.fixture
def sales(tmp_path: Path) -> Path:
    file = tmp_path / "sales.csv"
    file.write_text(CSV)
    return file


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataAnalysis]:
    """An action over one file, which takes a process to open."""
    file = tmp_path_factory.mktemp("shop") / "sales.csv"
    file.write_text(CSV)
    action = DataAnalysis(file)
    yield action
    action.close()


def ask(action: DataAnalysis, question: str = "?", sql: str = "", **more: Any) -> Document:
    [found] = asyncio.run(action.retrieve(ActionRequest(question, question, action_input=sql, **more)))
    return found


def files(folder: Path) -> dict[str, Path]:
    connection = duckdb.connect()
    connection.read_csv(str(folder / "sales.csv")).create("sales")
    made = {
        name: folder / f"made.{name}" for name in ("tsv", "parquet", "json", "jsonl", "csv.gz", "xlsx", "sqlite", "duckdb")
    }
    connection.execute(f"COPY sales TO '{made['tsv']}' (DELIMITER '\t', HEADER)")
    connection.execute(f"COPY sales TO '{made['parquet']}'")
    connection.execute(f"COPY sales TO '{made['json']}' (ARRAY true)")
    connection.execute(f"COPY sales TO '{made['jsonl']}' (FORMAT json)")
    connection.execute(f"COPY sales TO '{made['csv.gz']}'")
    rows = connection.execute("SELECT * FROM sales").fetchall()
    connection.close()
    book = openpyxl.Workbook()
    for row in [("region", "year", "revenue"), *rows]:
        book.active.append(row)
    book.save(made["xlsx"])
    with sqlite3.connect(made["sqlite"]) as sqlite:
        sqlite.execute("CREATE TABLE sales (region TEXT, year INT, revenue REAL)")
        sqlite.executemany("INSERT INTO sales VALUES (?, ?, ?)", rows)
    sqlite.close()
    with duckdb.connect(str(made["duckdb"])) as database:
        database.read_csv(str(folder / "sales.csv")).create("sales")
    return made


def test_every_form_of_a_table_gives_the_same_sum(sales: Path) -> None:
    made = files(sales.parent)
    databases = {name: path for name, path in made.items() if path.suffix in (".sqlite", ".duckdb")}
    tables = {f"of_{number}": path for number, (name, path) in enumerate(made.items()) if name not in databases}
    for sources, names in [(tables, [*tables]), *((path, ["sales"]) for path in databases.values())]:
        action = DataAnalysis(sources)
        for name in names:
            assert "total 2144.5" in ask(action, sql=f"SELECT SUM(revenue) AS total FROM {name}").page_content, name
        assert action.description().count("region") == len(names)
        action.close()


def test_the_evidence_is_query_result_and_source(shop: DataAnalysis) -> None:
    found = ask(shop, sql="select region,\n  sum(revenue) as total from sales group by 1 order by 2 desc")
    query = "SELECT region, SUM(revenue) AS total FROM sales GROUP BY 1 ORDER BY 2 DESC"
    assert found.page_content == (
        f"{query} gives region North, total 1244.5; region South, total 900\n\n"
        "| region | total |\n| --- | --- |\n| North | 1244.5 |\n| South | 900 |"
    )
    assert found.metadata["source"] == shop._engines[0].source
    assert found.metadata["query"] == query
    assert found.metadata["quote"].startswith(query)


@pytest.mark.parametrize(
    "guess", ["The revenue of North was 1,234.5 in 2019.", "1234.5", "North had a revenue of 1234.5 in 2019."]
)
def test_a_figure_verifies_however_it_is_written(shop: DataAnalysis, guess: str) -> None:
    found = ask(shop, sql="SELECT region, year, revenue FROM sales WHERE region = 'North' AND year = 2019")
    question = "What was the revenue of North in 2019?"
    claims = [as_claim(one, question) for one in (guess, guess.replace("234.5", "334.5"))]
    assert [verdict.supported for verdict in judge(claims, Evidence.of([found]), LexicalVerifier())] == [True, False]


def test_cells_are_short_and_plain() -> None:
    row = (0.1 + 0.2, Decimal("12.50"), datetime.datetime(2019, 5, 1), None, True, b"xy", "a|b\nc", "x" * 1000)
    text = evidence_from(Result.of(tuple("abcdefgh"), [row], 5), "SELECT 1", "t", "data").page_content
    line = text.splitlines()[-1]
    assert line.startswith("| 0.3 | 12.50 | 2019-05-01 | none | yes | (2 bytes) | a/b c | xxx")
    assert len(line) < 300
    wide = Result.of(("a",), [("y" * 190,) for _ in range(1000)], 1000)
    text = evidence_from(wide, "SELECT 1", "t", "data").page_content
    assert len(text) < 11_000
    assert "there are more" in text


def test_a_file_that_changes_or_was_broken_for_a_while_is_read_again(sales: Path) -> None:
    action = DataAnalysis(sales)
    sales.write_text(CSV + "West,2021,5.5\n")
    assert "total 2150" in ask(action, sql=TOTAL).page_content
    assert "West" in action.description()
    sales.write_text("")
    for _ in range(2):
        with pytest.raises(TableError, match="empty"):
            ask(action, sql=TOTAL)
    sales.write_text(CSV)
    assert "total 2144.5" in ask(action, sql=TOTAL).page_content
    action.close()
    with pytest.raises(TableError, match="closed"):
        ask(action, sql=TOTAL)


def test_rows_and_time_can_be_set_for_a_run(shop: DataAnalysis) -> None:
    text = ask(shop, sql="SELECT * FROM sales ORDER BY year", settings={"max_rows": 1}).page_content
    assert "(the first 1 rows; there are more)" in text


def test_an_action_of_ones_own_may_take_more_than_a_run_can_ask_for(sales: Path) -> None:
    """A timeout beyond what the systems' clocks take is no limit."""
    action = DataAnalysis(sales, max_rows=100_000, timeout=1e12)
    assert "North" in ask(action, sql="SELECT region FROM sales").page_content


@pytest.mark.parametrize("password", ["x@Tr0ub4dor", "Tr0ub4dor@x@y"])
def test_a_password_with_an_at_sign_is_not_shown(password: str) -> None:
    with pytest.raises(TableError, match="write @ in a user name or password as %40") as refusal:
        DataAnalysis(f"postgresql://ann:{password}@127.0.0.1:1/db")
    assert "Tr0ub4dor" not in str(refusal.value)


def test_a_query_finds_the_database_that_has_its_table(tmp_path: Path, sales: Path) -> None:
    file = tmp_path / "people.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE people (full_name TEXT, birth_year INT)")
        connection.executemany("INSERT INTO people VALUES (?, ?)", [("Ada Lovelace", 1815), ("Ada O'Neil", 1990)])
    connection.close()
    action = DataAnalysis([sales, file])
    found = ask(action, sql="SELECT birth_year FROM people WHERE full_name = 'Ada Lovelace'")
    assert "birth_year 1815" in found.page_content
    assert found.metadata["source"] == str(file)
    assert "South" in ask(action, sql="SELECT region FROM sales WHERE revenue = 900").page_content
    with pytest.raises(ActionInputError, match="no column 'x'"):
        ask(action, sql="SELECT x FROM people")


def test_the_planner_reads_columns_values_and_comments(tmp_path: Path, sales: Path) -> None:
    description = DataAnalysis(sales, description="what the shop sold").description()
    assert description.startswith("what the shop sold; action_input: one SELECT in DuckDB SQL")
    assert 'region VARCHAR ("North", "South")' in description
    assert "North" not in DataAnalysis(sales, sample_values=False).description()
    database = tmp_path / "c.duckdb"
    with duckdb.connect(str(database)) as connection:
        connection.execute('CREATE TABLE t ("unit price" DOUBLE)')
        connection.execute("COMMENT ON COLUMN t.\"unit price\" IS 'in euros,\n net'")
    assert '"unit price" DOUBLE (in euros, net)' in DataAnalysis(database).description()


def test_the_description_keeps_to_its_budget() -> None:
    tables = [Table(f"t{n}", tuple(Column(f"c{m}", "BIGINT", ("1",)) for m in range(30)), "f.csv") for n in range(50)]
    for budget in (100_000, 20_000, 3_000, 300):
        text = describe(tables, budget)
        assert len(text) <= budget
        assert text.startswith("- t0, from f.csv: ")


def test_names_for_tables(tmp_path: Path, sales: Path) -> None:
    book = openpyxl.Workbook()
    book.active.title = "Q1 2019"
    book.active.append(["a"])
    book.active.append([1])
    book.create_sheet("Q2").append(["b"])
    book.save(tmp_path / "my book.xlsx")
    description = DataAnalysis({"shop": sales}).description()
    assert "- shop, from" in description
    assert "- my_book_Q1_2019, from" in DataAnalysis(tmp_path / "my book.xlsx").description()
    assert "- sales, from" in DataAnalysis(tmp_path).description(), "a folder is the tables in it"


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (None, "missing.csv", "no file"),
        (b"text", "notes.txt", "is no table"),
        (b"", "empty.csv", "empty.csv cannot be read as a table"),
        (b"PK\x03\x04broken", "broken.xlsx", "cannot be read as an Excel file"),
        (b"PAR1xxxx", "broken.parquet", "cannot be read as a table"),
        (b"{broken", "broken.json", "cannot be read as a table"),
        (b"SQLite format 3\x00broken", "broken.db", "cannot be read"),
    ],
)
def test_what_cannot_be_opened_is_told_in_one_line(tmp_path: Path, content: bytes | None, name: str, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(TableError, match=message) as told:
        DataAnalysis(tmp_path / name)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("sources", "more", "message"),
    [
        ([], {}, "there are no tables"), ("https://example.org/a.csv", {}, "download the file first"),
        ("sqlite:////no/such.db", {}, "no SQLite database"), ("duckdb:////no/such.duckdb", {}, "no DuckDB database"),
        ("://x", {}, "no file"), ("nosuchdb://user:hunter2@host/x", {}, "cannot be opened"),
        ({"1x": "a.csv"}, {}, "must be a letter"), ("x.csv", {"max_rows": 0}, "max_rows must be from 1 to 100000, not 0"),
        ("x.csv", {"timeout": 0}, "timeout must be a number of seconds above 0, not 0"),
        ("x.csv", {"max_rows": 100_001}, "max_rows must be from 1 to 100000"),
        ("x.csv", {"timeout": float("nan")}, "timeout must be a number"), ([3], {}, "must be a path"),
    ],
)  # fmt: skip
def test_arguments_that_cannot_be_used(sources: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises((InputError, TableError), match=message) as told:
        DataAnalysis(sources, **more)
    assert "hunter2" not in str(told.value)


def test_one_name_in_two_databases_is_refused(sales: Path) -> None:
    database = files(sales.parent)["sqlite"]
    with pytest.raises(InputError, match="have a table 'sales'"):
        DataAnalysis([sales, database])


@pytest.mark.slow
def test_comments_are_read_before_the_short_time_limit_of_values(tmp_path: Path) -> None:
    statements: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        statements.append(statement)

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", note)
    try:
        with opened("postgres", tmp_path, lambda execute: execute("CREATE TABLE t (a INT)")) as address:
            DataAnalysis(address).close()
    finally:
        sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", note)
    limited = next(n for n, statement in enumerate(statements) if "statement_timeout = 1000" in statement)
    assert "pg_description" in " ".join(statements[:limited])
    assert not [statement for statement in statements[limited:] if "pg_description" in statement]


@pytest.mark.slow
def test_a_password_stands_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with postgres_server() as url:
        engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
        with engine.begin() as connection:
            connection.exec_driver_sql('CREATE TABLE "Sales" (region text, "Revenue" numeric(10,2))')
            connection.exec_driver_sql("COMMENT ON COLUMN \"Sales\".region IS 'where it was sold'")
            connection.exec_driver_sql("INSERT INTO \"Sales\" VALUES ('North', 12.50), ('100%%', 1)")
        engine.dispose()
        caplog.clear()
        action = DataAnalysis(url)
        found = ask(action, sql="SELECT region, Revenue FROM sales WHERE region LIKE 'No%'")
        assert "region North, revenue 12.50" in found.page_content.replace("Revenue", "revenue")
        assert "where it was sold" in action.description()
        errors = []
        for sql in ("SELECT region / 0 FROM sales", "SELECT CAST(region AS INT) FROM sales"):
            with pytest.raises(ActionInputError, match="the query failed") as told:
                ask(action, sql=sql)
            errors.append(str(told.value))
        action.close()
        with pytest.raises(TableError, match="password authentication failed") as refused:
            DataAnalysis(url.replace("s3cret", "wrong-s3cret"))
        with pytest.raises(TableError, match="there is no table 'nope'"):
            DataAnalysis(url, tables=["nope"])
    everything = " ".join([str(found), action.description(), repr(action), *errors, str(refused.value), caplog.text])
    assert refused.value.__cause__ is None
    assert "s3cret" not in everything
    assert PASSWORD not in everything
    assert found.metadata["source"] == "postgresql://localhost/postgres"
