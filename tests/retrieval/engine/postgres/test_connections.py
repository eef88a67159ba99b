"""Connections that are kept: those that died, by a server that was restarted, cost no question."""

from __future__ import annotations

from langgraph_convcoa.retrieval.engine.postgres.connections import Connections


def test_what_takes_long_has_no_limit_of_the_server(pgvector):
    limits = ("statement_timeout", "lock_timeout", "idle_session_timeout")
    given = "%20".join(f"-c%20{limit}%3D60000" for limit in limits)
    connections = Connections(f"{pgvector}?options={given}", timeout=30, label="It")
    for limit in limits:
        assert connections.run(lambda cursor, limit=limit: cursor.execute(f"SHOW {limit}").fetchone()) != ("0",)
        with connections.session() as session:
            assert session.execute(f"SHOW {limit}").fetchall() == [("0",)]
    connections.close()
