"""Hostile statements made from a grammar: what they would do, and every place of a query where that could hide."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

READS = [
    "(SELECT salary FROM secrets LIMIT 1)", "(SELECT max(salary) FROM public.secrets)", "(SELECT salary FROM main.secrets)",
    "(TABLE secrets)", "(SELECT string_agg(s::text, ',') FROM secrets s)", "pg_read_file('/etc/passwd')",
    "(SELECT content FROM read_text('/etc/passwd'))", "(SELECT sql FROM sqlite_master LIMIT 1)",
    "current_setting('data_directory')", "set_config('statement_timeout', '0', false)", "pg_sleep(30)",
    "query_to_xml('SELECT * FROM secrets', true, true, '')", "nextval('s')", "getenv('HOME')", "load_extension('x')",
    "lo_import('/etc/passwd')",
]  # fmt: skip
"""Expressions that read, call or wait."""

PLACES = [
    "SELECT {} FROM sales", "SELECT region, {} AS x FROM sales", "SELECT region FROM sales WHERE {} IS NOT NULL",
    "SELECT region FROM sales ORDER BY {}", "SELECT max(region) FROM sales GROUP BY year HAVING {} IS NOT NULL",
    "SELECT CASE WHEN year > 0 THEN {} END FROM sales", "SELECT coalesce({}, region) FROM sales",
    "SELECT sum(revenue) OVER (PARTITION BY {}) FROM sales", "SELECT count(*) FILTER (WHERE {} IS NULL) FROM sales",
    "SELECT region FROM sales LIMIT {}", "SELECT region FROM sales UNION ALL SELECT {} FROM sales",
    "WITH c AS (SELECT {} AS x FROM sales) SELECT x FROM c", "SELECT q.x FROM (SELECT {} AS x FROM sales) q",
    "SELECT a.region FROM sales a JOIN sales b ON {} = a.region",
    "SELECT region FROM sales WHERE (region, year) IN (SELECT {}, 1 FROM many)",
    "SELECT v.x FROM sales, (VALUES ({})) AS v(x)",
]  # fmt: skip
"""Queries over what is given, with a place for an expression."""

_BREAKS = [
    "year FROM date '2020-01-01'), {} FROM sales --", "year FROM date '2020-01-01'), {}, (1",
    "day' , opened), {} FROM sales --", "day', date '2020-01-01'), {} FROM sales; COMMIT; DELETE FROM sales; --",
    "day FROM current_date) FROM sales; {}; --", "epoch/**/FROM current_date), {} FROM sales /*", "x'||{}||'",
    "x\\' || {} -- ", 'x", {} AS "y', "x`, {} AS `y", "1), {} --", "a\u2028b {}", "day\n, {}",
]  # fmt: skip
"""What leaves the place of a name, a unit or a text."""

_CARRIERS = [
    'SELECT EXTRACT("{}" FROM CAST(region AS DATE)) FROM sales', 'SELECT DATE_PART("{}", CAST(region AS DATE)) FROM sales',
    'SELECT DATE_TRUNC("{}", CAST(region AS DATE)) FROM sales',
    'SELECT DATE_DIFF("{}", CAST(region AS DATE), CAST(region AS DATE)) FROM sales', "SELECT INTERVAL '1' \"{}\" FROM sales",
    "SELECT INTERVAL '1' DAY TO \"{}\" FROM sales", "SELECT EXTRACT('{}' FROM CAST(region AS DATE)) FROM sales",
    "SELECT DATE_TRUNC('{}', CAST(region AS DATE)) FROM sales",
    "SELECT DATE_DIFF('{}', CAST(region AS DATE), CAST(region AS DATE)) FROM sales", "SELECT INTERVAL '1 {}' FROM sales",
    'SELECT region AS "{}" FROM sales', 'SELECT q."{0}" FROM (SELECT region AS "{0}" FROM sales) q',
    'SELECT s.region FROM sales AS "{}" JOIN sales s ON true',
    'WITH "{0}" AS (SELECT region FROM sales) SELECT region FROM "{0}"', 'SELECT CAST(region AS "{}") FROM sales',
    "SELECT region || '{}' FROM sales", "SELECT region FROM sales WHERE region LIKE 'a' ESCAPE '{}'",
    'SELECT region COLLATE "{}" FROM sales', "SELECT TRIM(BOTH '{}' FROM region) FROM sales",
    "SELECT region -> '$.\"{}\"' FROM sales",
    'SELECT sum(revenue) OVER "{0}" FROM sales WINDOW "{0}" AS (PARTITION BY region)', 'SELECT region FROM sales AS s("{}")',
    "SELECT region /* {} */ FROM sales", "SELECT region -- {}\nFROM sales", "SELECT U&'{}' FROM sales",
    "SELECT E'{}' FROM sales", "SELECT $a${}$a$ FROM sales",
]  # fmt: skip
"""Queries with a name, a unit, a text or a comment."""

_HIDDEN = "ctid xmin cmin tableoid rowid oid _rowid_ row_to_json secret_function row_to_text to_jsonb mean salary".split()  # noqa: SIM905
_NAMED = [
    "SELECT {} FROM sales", "SELECT s.{} FROM sales s", "SELECT s.{0}, 1 AS {0} FROM sales s",
    "SELECT {0}, 1 AS {0} FROM sales s", 'SELECT s."{0}", region AS "{0}" FROM sales s',
    "SELECT (s).{0}, 1 AS {0} FROM sales s", "SELECT public.sales.{0}, 1 AS {0} FROM public.sales",
    "SELECT q.{0} FROM (SELECT s.{0}, 1 AS x FROM sales s) q",
    "SELECT (SELECT q.a FROM (SELECT 1 AS {0} FROM many) s, (SELECT s.{0} AS a) q) FROM sales s",
    "SELECT (SELECT q.a FROM (SELECT 1 AS {0} FROM many) s, LATERAL (SELECT s.{0} AS a) q) FROM sales s",
    "SELECT s.region FROM sales s JOIN sales t USING ({})",
    "SELECT region FROM sales s ORDER BY s.{0}, (SELECT 1 AS {0} FROM many LIMIT 1)",
    "SELECT count(*) AS {0} FROM sales s GROUP BY s.{0}", "WITH c AS (SELECT 1 AS {0} FROM many) SELECT s.{0} FROM sales s, c",
    "SELECT max(s.{0}) FROM sales s, (SELECT 1 AS {0} FROM many) t", "SELECT {0}(s) FROM sales s",
    "SELECT {0}(s.*) FROM sales s", "SELECT t.{0} FROM (sales s JOIN many m ON true) AS t(a)",
]  # fmt: skip
"""Queries with a name of a hidden column or a function, called as PostgreSQL calls functions of rows."""

_SOURCES = [
    "secrets", "public.secrets", "main.secrets", '"secrets"', "secrets AS sales", "pg_shadow", "pg_catalog.pg_authid",
    "information_schema.columns", "sqlite_master", "sqlite_schema", "duckdb_tables()", "pragma_table_info('secrets')",
    "read_csv('/etc/passwd')", "read_text('/etc/passwd')", "'/etc/passwd'", '"/etc/passwd"',
    "generate_series(1, 1000000000000)", "pg_ls_dir('/')", "query_table('secrets')", "dblink('', 'SELECT 1') AS t(a int)",
    "json_each('[1]')", "unnest(range(1000000000))",
]  # fmt: skip
_FROMS = [
    "SELECT * FROM {}", "SELECT * FROM sales, {}", "SELECT sales.region FROM sales LEFT JOIN {} ON true",
    "SELECT * FROM (SELECT * FROM {}) q", "SELECT region FROM sales WHERE EXISTS (SELECT 1 FROM {})",
    "WITH c AS (SELECT * FROM {}) SELECT * FROM c, sales", "SELECT region FROM sales UNION ALL SELECT * FROM {}",
    "SELECT (SELECT count(*) FROM {}) FROM sales",
    "SELECT q.x FROM (WITH secrets AS (SELECT region AS x FROM sales) SELECT x FROM secrets) q, {}",
]  # fmt: skip
_WRITES = [
    "DELETE FROM sales", "UPDATE sales SET revenue = 0", "DROP TABLE sales", "INSERT INTO sales VALUES ('x', 1, 1)",
    "CREATE TABLE stolen AS SELECT * FROM secrets", "COMMIT", "SET statement_timeout = 0",
    "COPY sales TO '/tmp/convcoa-stolen.csv'", "ATTACH '/tmp/convcoa-other.db' AS other", "SELECT salary FROM secrets",
    "PRAGMA writable_schema = ON", "VACUUM INTO '/tmp/convcoa-stolen.db'",
]  # fmt: skip
_AROUND = [
    "{}", "SELECT region FROM sales; {}", "SELECT region FROM sales; COMMIT; {}; --",
    "WITH x AS ({} RETURNING *) SELECT * FROM x, sales", "EXPLAIN ANALYZE {}",
    "SELECT region FROM sales WHERE year = 2019 /* ; */; {}", "SELECT region FROM sales WHERE region = '\\'; {}; --'",
    "SELECT region FROM sales WHERE region = 'a\\' OR region = '; {}; --'", "(SELECT region FROM sales); {}",
    "PREPARE p AS {}", "DO $$ BEGIN {}; END $$",
]  # fmt: skip


def statements() -> Iterator[str]:
    """All of them, each once."""
    made = [place.format(read) for place, read in product(PLACES, READS)]
    made += [carrier.format(one) for carrier in _CARRIERS for one in (b.format(READS[0]) for b in _BREAKS)]
    made += [named.format(name) for named, name in product(_NAMED, _HIDDEN)]
    made += [where.format(source) for where, source in product(_FROMS, _SOURCES)]
    made += [around.format(write) for around, write in product(_AROUND, _WRITES)]
    yield from dict.fromkeys(made)
