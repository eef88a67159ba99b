"""PostgreSQL with pgvector as the engine of a corpus."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.encoders.base import Vectors
from langgraph_convcoa.retrieval.engine.base import ServerEngine, Statistics, StoredPassage, check_text
from langgraph_convcoa.retrieval.engine.postgres import tables
from langgraph_convcoa.retrieval.engine.postgres.conditions import Condition, condition_of
from langgraph_convcoa.retrieval.engine.postgres.connections import Connections, Rows, set_local
from langgraph_convcoa.retrieval.engine.postgres.tables import Schema
from langgraph_convcoa.retrieval.filters import Filter
from langgraph_convcoa.retrieval.hybrid.bm25 import saturation

if TYPE_CHECKING:
    from psycopg import Connection

_LOGGER = logging.getLogger(__name__)
# Windows searched for each wanted passage, since several of them may belong to one passage.
_WINDOWS = 3
# pgvector's largest `hnsw.ef_search`. A search sets it to twice the number of wanted windows, up to this limit.
_BROADEST = 1_000
# For a common word, only the passages where it weighs most are read; with a filter, more of them.
_POSTINGS, _POSTINGS_FILTERED = 1_000, 50_000
# Extra seconds for each written passage, mostly for the HNSW index.
_WRITING = 0.2
# The condition without a filter.
_ALL = Condition("TRUE", [])


class PostgresEngine(ServerEngine):
    """Passages of a tenant in tables of a PostgreSQL server that has pgvector 0.8 or newer.

    An HNSW index over the windows, in half precision, finds the candidates. Patterns are stored as float32. If the tenant and
    the filter leave at most `exact` passages, these are all compared, without the index.

    Args:
        address: postgresql://user@host:5432/database, as libpq reads it. The password is better kept in PGPASSWORD or
            ~/.pgpass.
        collection: Up to 40 lower-case letters, digits and _.
        tenant: The owner of the passages; passages of other tenants are neither seen nor changed.
        timeout: Seconds to wait for an answer; 0.2 s more for each written passage. `settle` has no time-out.
        exact: Up to this number of passages are searched without the HNSW index.
        build_memory: The server's maintenance_work_mem while it builds an index.
    """

    variables = ("PGHOST", "PGPORT", "PGDATABASE", "PGUSER", "PGPASSWORD", "PGSSLMODE")

    def __init__(
        self,
        address: str,
        *,
        collection: str,
        tenant: str = "default",
        timeout: float = 10.0,
        exact: int = 5_000,
        build_memory: str = "1GB",
    ) -> None:
        super().__init__("PostgreSQL", address, collection, tenant, timeout)
        self._sql = Schema(collection)
        self._connections: Connections = Connections(address, timeout=self.timeout, label=self.name)
        self._exact, self._build_memory = exact, build_memory
        self._loading = f"convcoa load {collection}"

    def _prepared(self, dimension: int, encoder: str, create: bool) -> bool:
        def prepared(cursor: Rows) -> bool:
            if create and not self._sql.found(cursor):
                self._sql.create(cursor, self.version, dimension, encoder)
            # Another process may have made the collection with other settings.
            there = self._checked(cursor, dimension, encoder)
            if there and self._sql.unbuilt(cursor):
                _LOGGER.warning("%s is being loaded, or a load was cut off: searches are slow until it is settled.", self.name)
            return there

        return self._connections.run(prepared)

    def _found(self, server: Rows) -> tuple[int, int, str] | None:
        return self._sql.found(server)

    def search(self, vectors: Vectors, k: int, condition: Filter | None = None) -> list[list[str]]:
        asked = condition_of(condition) or _ALL
        texts = ["[" + ",".join(map(repr, row)) + "]" for row in np.asarray(vectors, dtype=np.float32).tolist()]

        def found(cursor: Rows) -> list[list[str]]:
            named = self._compared if self._few(cursor, asked) else self._near
            return [named(cursor, text, k, asked) for text in texts]

        return self._connections.run(found)

    def words(self, weights: Mapping[str, float], mean_length: float, k: int, condition: Filter | None = None) -> list[str]:
        joined, values = self._joined(condition_of(condition) or _ALL)
        most = _POSTINGS if condition is None else _POSTINGS_FILTERED
        terms = [[tables.term_number(term) for term in weights], [float(weight) for weight in weights.values()]]
        # A word weighs count / (count + c). c is linear in the passage's length: `none` at length 0, `one` at length 1.
        none, one = (float(1 / saturation(1, length, mean_length)) - 1 for length in (0, 1))
        given = (*terms, none, one - none, self.tenant, most, *values, k, self.tenant)
        return [row[0] for row in self._rows(_WORDS, *given, joined=joined)]

    def patterns(self, ids: Sequence[str]) -> list[StoredPassage]:
        if not ids:
            return []
        found = {
            name: StoredPassage(name, document, text, metadata, *tables.windows_of(spans, vectors), json.loads(terms), digest)
            for name, document, text, metadata, spans, vectors, terms, digest in self._rows(
                _READ_PASSAGES, self.tenant, _askable(ids)
            )
        }
        return [found[name] for name in dict.fromkeys(ids) if name in found]

    def parts(self, documents: Sequence[str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        statement = "SELECT document, id FROM {passages} WHERE tenant = %s AND document = ANY (%s::text[]) ORDER BY part"
        for document, passage in self._rows(statement, self.tenant, _askable(documents)):
            found.setdefault(document, []).append(passage)
        return found

    def digests(self, documents: Sequence[str]) -> dict[str, bytes]:
        statement = "SELECT document, digest FROM {documents} WHERE tenant = %s AND document = ANY (%s::text[])"
        return dict(self._rows(statement, self.tenant, _askable(documents)))

    def put(self, passages: Sequence[StoredPassage]) -> None:
        if passages:
            self._written(lambda cursor: self._put(cursor, passages), len(passages))

    @contextmanager
    def loading(self) -> Iterator[None]:
        def begun(cursor: Rows) -> None:
            # For an empty collection, building the indexes at the end is faster than updating them row by row.
            if self._ask(cursor, "SELECT 1 FROM {windows} LIMIT 1").fetchone() is None:
                self._sql.unbuild(cursor)

        # Building an index blocks all writers, so `settle` leaves it to the last holder of this lock. The server frees the
        # lock when a program dies.
        with self._connections.session() as connection:
            if not _locked(connection, "pg_try_advisory_lock_shared", self._loading):
                _LOGGER.warning("%s is having its indexes built after another load; this one begins then.", self.name)
                _locked(connection, "pg_advisory_lock_shared", self._loading)
            self._connections.run(begun)
            yield

    def settle(self) -> None:
        with self._connections.session() as connection:
            # Two loads that end at the same time take turns.
            _locked(connection, "pg_advisory_lock", f"{self._loading} settled")
            if not _locked(connection, "pg_try_advisory_lock", self._loading):
                _LOGGER.warning("%s is still being loaded by others; the last one builds its indexes.", self.name)
                return
            connection.add_notice_handler(_noticed)
            connection.execute("SELECT set_config('maintenance_work_mem', %s, false)", [self._build_memory])
            cursor = connection.cursor()
            self._sql.fold(cursor)
            self._sql.build(cursor)
            # Index-only scans need a vacuum.
            for table in self._sql.tables.values():
                connection.execute(f"VACUUM ANALYZE {table}")

    def delete(self, documents: Sequence[str]) -> None:
        names = sorted(_askable(documents))

        def deleted(cursor: Rows) -> None:
            self._ask(cursor, _DELETE_DOCUMENTS, self.tenant, names)
            self._remove(cursor, names)

        self._written(deleted, len(names))

    def statistics(self, terms: Iterable[str]) -> Statistics:
        numbers = {tables.term_number(term): term for term in terms}

        def counted(cursor: Rows) -> Statistics:
            found = self._ask(cursor, _COUNT_WORDS, self.tenant, list(numbers)).fetchall()
            _, filled, words = self._totals(cursor)
            return Statistics(filled, words / max(filled, 1), {numbers[term]: count for term, count in found})

        return self._connections.run(counted)

    def count(self) -> int:
        return self._connections.run(lambda cursor: self._totals(cursor)[0] if self._sql.found(cursor) else 0)

    def _ask(self, cursor: Rows, statement: str, *values: Any, **parts: str) -> Rows:
        return cursor.execute(self._sql(statement, **parts), values)

    def _rows(self, statement: str, *values: Any, **parts: str) -> list[tuple[Any, ...]]:
        return self._connections.run(lambda cursor: self._ask(cursor, statement, *values, **parts).fetchall())

    def _totals(self, cursor: Rows) -> tuple[int, ...]:
        [found] = self._ask(cursor, _SUM_TOTALS, self.tenant).fetchall()
        return found

    def _few(self, cursor: Rows, asked: Condition) -> bool:
        """True if the allowed passages are so few that all are compared."""
        statement = "SELECT FROM {passages} WHERE tenant = %s AND ({where}) LIMIT 1 OFFSET %s"
        return not self._ask(cursor, statement, self.tenant, *asked.values, self._exact, where=asked.sql).fetchall()

    def _compared(self, cursor: Rows, vector: str, k: int, asked: Condition) -> list[str]:
        rows = self._ask(cursor, _COMPARED, self.tenant, *asked.values, vector, k, where=asked.sql).fetchall()
        return [row[0] for row in rows]

    def _near(self, cursor: Rows, vector: str, k: int, asked: Condition) -> list[str]:
        joined, values = self._joined(asked)
        wanted = _WINDOWS * k
        while True:
            # By default, pgvector returns at most 40 rows, and fewer if some belong to other tenants.
            breadth = min(_BROADEST, max(2 * wanted, 100))
            scan = {"hnsw.iterative_scan": "relaxed_order", "hnsw.max_scan_tuples": max(20_000, 20 * wanted)}
            set_local(cursor, {"hnsw.ef_search": breadth, **scan})
            given = (vector, *values, self.tenant, vector, wanted, self.tenant, k)
            rows = self._ask(cursor, _NEAR, *given, joined=joined).fetchall()
            # Many windows of a few passages may have filled the result.
            if len(rows) >= k or not rows or rows[0][2] < wanted:
                return [row[0] for row in rows]
            wanted *= 4

    def _joined(self, asked: Condition) -> tuple[str, list[Any]]:
        """The join that keeps only passages that meet a condition, with the values of its placeholders."""
        if asked is _ALL:
            return "", []
        joined = self._sql("JOIN {passages} p ON p.key = passage AND p.tenant = %s AND ({where})", where=asked.sql)
        return joined, [self.tenant, *asked.values]

    def _put(self, cursor: Rows, passages: Sequence[StoredPassage]) -> None:
        self._check_open(cursor)
        documents = {passage.document: passage.digest for passage in passages}
        names = sorted(documents)
        self._ask(cursor, _PUT_DOCUMENTS, self.tenant, names, [documents[name] for name in names])
        self._remove(cursor, names)
        numbers = "SELECT nextval(pg_get_serial_sequence('{passages}', 'key')) FROM generate_series(1, %s)"
        keys = [row[0] for row in self._ask(cursor, numbers, len(passages)).fetchall()]
        terms = [passage.terms for passage in passages]
        words = tables.postings(keys, terms)
        self._copy(cursor, "passages", tables.passage_rows(keys, self.tenant, passages))
        self._copy(cursor, "windows", tables.window_rows(keys, self.tenant, passages))
        self._copy(cursor, "words", ((*one, self.tenant) for one in words))
        self._tally(cursor, terms, words, 1)

    def _remove(self, cursor: Rows, documents: Sequence[str]) -> None:
        statement = "DELETE FROM {passages} WHERE tenant = %s AND document = ANY (%s::text[]) RETURNING key, terms"
        removed = self._ask(cursor, statement, self.tenant, list(documents)).fetchall()
        if not removed:
            return
        keys, terms = [row[0] for row in removed], [json.loads(row[1]) for row in removed]
        self._ask(cursor, "DELETE FROM {windows} WHERE passage = ANY (%s::bigint[])", keys)
        words = tables.postings(keys, terms)
        columns = [[one.term for one in words], [one.impact for one in words], [one.passage for one in words]]
        self._ask(cursor, _DELETE_WORDS, *columns, self.tenant)
        self._tally(cursor, terms, words, -1)

    def _tally(self, cursor: Rows, terms: Sequence[Mapping[str, int]], words: Sequence[tables.Posting], sign: int) -> None:
        """Add passages to the counts of words and passages, or subtract them."""
        found = Counter(one.term for one in words)
        self._copy(cursor, "frequencies", ((term, sign * times, self.tenant) for term, times in found.items()))
        lengths = [sum(one.values()) for one in terms]
        totals = [sign * total for total in (len(lengths), sum(length > 0 for length in lengths), sum(lengths))]
        self._ask(cursor, "INSERT INTO {totals} VALUES (%s, %s, %s, %s)", self.tenant, *totals)

    def _copy(self, cursor: Rows, table: str, rows: Iterable[tables.Row]) -> None:
        with cursor.copy(self._sql(f"COPY {{{table}}} FROM STDIN (FORMAT BINARY)")) as copy:
            copy.set_types(tables.TYPES[table])
            for row in rows:
                copy.write_row(row)

    def _written(self, work: Callable[[Rows], None], passages: int) -> None:
        from psycopg import errors

        def checked(cursor: Rows) -> None:
            try:
                work(cursor)
            except errors.UniqueViolation:
                raise self._taken() from None

        self._connections.run(checked, timeout=self.timeout + _WRITING * passages)


# Both statements lock the documents in a fixed order, so that two writers cannot deadlock.
_PUT_DOCUMENTS = """
    INSERT INTO {documents} SELECT %s, name, digest FROM unnest(%s::text[], %s::bytea[]) AS of (name, digest)
    ORDER BY name ON CONFLICT (tenant, document) DO UPDATE SET digest = excluded.digest"""
_DELETE_DOCUMENTS = """
    DELETE FROM {documents} WHERE (tenant, document) IN (SELECT tenant, document FROM {documents}
    WHERE tenant = %s AND document = ANY (%s::text[]) ORDER BY document FOR UPDATE)"""
_READ_PASSAGES = """
    SELECT id, document, text, metadata, spans, vectors, terms, digest
    FROM {passages} JOIN {documents} USING (tenant, document) WHERE tenant = %s AND id = ANY (%s::text[])"""
_DELETE_WORDS = """
    DELETE FROM {words} w USING unnest(%s::bigint[], %s::real[], %s::bigint[]) gone (term, impact, passage)
    WHERE w.tenant = %s AND (w.term, w.impact, w.passage) = (gone.term, gone.impact, gone.passage)"""
_SUM_TOTALS = """
    SELECT coalesce(sum(passages), 0)::bigint, coalesce(sum(filled), 0)::bigint, coalesce(sum(words), 0)::bigint
    FROM {totals} WHERE tenant = %s"""
_COUNT_WORDS = """
    SELECT term, sum(found)::bigint FROM {frequencies} WHERE tenant = %s AND term = ANY (%s::bigint[]) GROUP BY term"""
# The windows nearest to a vector, and their passages in the order of their nearest windows.
_NEAR = """
    SELECT id, nearest, found FROM (
        SELECT passage, min(distance) AS nearest, sum(count(*)) OVER () AS found FROM (
            SELECT passage, vector <#> %s::halfvec AS distance FROM {windows} w {joined}
            WHERE w.tenant = %s ORDER BY vector <#> %s::halfvec LIMIT %s
        ) near GROUP BY passage
    ) near JOIN {passages} ON key = passage AND tenant = %s ORDER BY nearest, key LIMIT %s"""
_COMPARED = """
    SELECT id FROM {passages} p JOIN {windows} ON passage = key WHERE p.tenant = %s AND ({where})
    GROUP BY key ORDER BY min(vector <#> %s::halfvec), key LIMIT %s"""
# For each word, the passages in which it weighs most; among these, the best by the weights of all words.
_WORDS = """
    SELECT id FROM (
        SELECT passage, sum(worth) AS score FROM unnest(%s::bigint[], %s::float8[]) AS asked (term, weight)
        CROSS JOIN LATERAL (
            SELECT passage, weight * count / (count + %s + %s * length) AS worth FROM {words}
            WHERE tenant = %s AND term = asked.term ORDER BY impact DESC LIMIT %s
        ) w {joined} GROUP BY passage ORDER BY score DESC, passage LIMIT %s
    ) best JOIN {passages} ON key = passage AND tenant = %s ORDER BY score DESC, key"""


def _locked(connection: Connection[tuple[Any, ...]], lock: str, name: str) -> bool:
    """Take a lock of the server until the connection ends; False if a `try` lock was not free."""
    [row] = connection.execute(f"SELECT {lock}(hashtextextended(%s, 1))", [name]).fetchall()
    return row[0] is not False


def _noticed(notice: Any) -> None:
    """Log that an index exceeds the memory for building it; the build then takes many times as long."""
    if "maintenance_work_mem" in (message := str(notice.message_primary)):
        _LOGGER.warning("PostgreSQL: %s; give more as `build_memory`.", message)


def _askable(names: Iterable[str]) -> list[str]:
    """The ids that an engine can store: those without NUL and lone surrogates."""
    found = []
    for name in names:
        with suppress(InputError):
            check_text(name, "id")
            found.append(name)
    return found
