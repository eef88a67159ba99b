"""Databases of every kind with the same tables, for tests of the guard and of the engines."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from langgraph_convcoa.actions.base import ActionRequest
from langgraph_convcoa.actions.tables.action import DataAnalysis
from tests.bounds import SECONDS
from tests.postgres_server import postgres_server

SECRET = "hidden-salary-4711"
ROWS = [("North", 2019, 1234.5), ("South", 2019, 900.0), ("North", 2020, 10.0)]

Fill = Callable[[Callable[[str], Any]], None]


def ask(action: DataAnalysis, sql: str, seconds: float = SECONDS) -> str:
    request = ActionRequest("?", "?", action_input=sql, settings={"timeout": seconds})
    [found] = asyncio.run(action.retrieve(request))
    return found.page_content


def fill(execute: Callable[[str], Any]) -> None:
    """`sales` and `many`, and `secrets`, which no test gives."""
    execute("CREATE TABLE sales (region VARCHAR(20), year INTEGER, revenue DOUBLE PRECISION)")
    execute("CREATE TABLE secrets (salary VARCHAR(40))")
    execute("CREATE TABLE many (n INTEGER)")
    for region, year, revenue in ROWS:
        execute(f"INSERT INTO sales VALUES ('{region}', {year}, {revenue})")
    execute(f"INSERT INTO secrets VALUES ('{SECRET}')")
    digits = "(SELECT 0 AS d " + " ".join(f"UNION ALL SELECT {d}" for d in range(1, 10)) + ")"
    execute(f"INSERT INTO many SELECT 100 * a.d + 10 * b.d + c.d FROM {digits} a, {digits} b, {digits} c")


def fill_shop(execute: Callable[[str], Any]) -> None:
    """What `fill` makes, and `stores`."""
    fill(execute)
    execute("CREATE TABLE stores (region VARCHAR(20), manager VARCHAR(20), opened DATE)")
    for row in ("'North', 'Ada', '2001-05-03'", "'South', 'Bo', '2011-01-01'", "'West', 'Cy', '2020-02-29'"):
        execute(f"INSERT INTO stores VALUES ({row})")


@contextmanager
def opened(kind: str, folder: Path, fill: Fill) -> Iterator[str]:
    """What `DataAnalysis` opens: a database of a kind ("duckdb", "sqlite" or "postgres"), filled."""
    if kind == "duckdb":
        import duckdb

        with duckdb.connect(str(folder / "shop.duckdb")) as connection:
            fill(connection.execute)
        yield str(folder / "shop.duckdb")
    elif kind == "sqlite":
        with sqlite3.connect(folder / "shop.db") as sqlite:
            fill(sqlite.execute)
        sqlite.close()
        yield str(folder / "shop.db")
    else:
        with postgres_server() as url:
            execute_in_postgres(url, fill)
            yield url


def execute_in_postgres(url: str, fill: Fill) -> None:
    import psycopg

    with psycopg.connect(url) as connection:
        fill(lambda statement: connection.execute(statement.encode()))
