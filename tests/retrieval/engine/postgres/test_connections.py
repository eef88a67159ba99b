"""Connections that are kept: those that died, by a server that was restarted, cost no question."""

from __future__ import annotations

import gc
import threading

from langgraph_convcoa.retrieval.engine.postgres.connections import _MOST, Connections, Rows
from tests.bounds import SECONDS, joined, run_in_threads


def test_after_a_restart_of_the_server_no_kept_connection_costs_a_question(pgvector, connection):
    connections = Connections(pgvector, timeout=30, label="It")
    together, found = threading.Barrier(_MOST, timeout=SECONDS), list[int]()

    def ask(cursor: Rows) -> None:
        found.append(cursor.execute("SELECT pg_backend_pid()").fetchall()[0][0])
        together.wait()

    run_in_threads([lambda: connections.run(ask)] * _MOST)
    assert len({*found}) == len(connections._kept) == _MOST
    for process in found:
        connection.execute("SELECT pg_terminate_backend(%s, 60000)", [process])
    assert connections.run(lambda cursor: cursor.execute("SELECT 1").fetchall()) == [(1,)]
    assert len(connections._kept) == 1
    connections.close()


def test_what_takes_long_has_no_limit_of_the_server(pgvector):
    limits = ("statement_timeout", "lock_timeout", "idle_session_timeout")
    given = "%20".join(f"-c%20{limit}%3D60000" for limit in limits)
    connections = Connections(f"{pgvector}?options={given}", timeout=30, label="It")
    for limit in limits:
        assert connections.run(lambda cursor, limit=limit: cursor.execute(f"SHOW {limit}").fetchone()) != ("0",)
        with connections.session() as session:
            assert session.execute(f"SHOW {limit}").fetchall() == [("0",)]
    connections.close()


def test_a_process_that_was_forked_does_not_end_the_connections_of_its_parent(pgvector):
    connections = Connections(pgvector, timeout=30, label="It")
    connections.run(lambda cursor: cursor.execute("SELECT 1").fetchall())
    [kept] = connections._kept
    # As if another process had made them.
    connections._process = -1
    connections.close()
    assert kept.execute("SELECT 1").fetchall() == [(1,)]
    assert connections._kept == []
    kept.close()


def test_connections_in_a_reference_cycle_are_closed_before_the_driver_warns_of_them(pgvector):
    connections = Connections(pgvector, timeout=30, label="It")
    before = threading.enumerate()
    # The collector takes younger objects first.
    gc.collect(0)
    connections.run(lambda cursor: cursor.execute("SELECT 1").fetchall())
    joined([thread for thread in threading.enumerate() if thread not in before])
    connections.itself = connections
    del connections
    gc.collect()
