"""What analysts write: joins, windows, dates, nested queries pass the guard on every database, and give what they should."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from langgraph_convcoa.actions.tables.action import DataAnalysis
from tests.actions.tables.places import ask, fill_shop, opened

pytest.importorskip("duckdb")
pytest.importorskip("sqlglot")
pytest.importorskip("sqlalchemy")

ALL = ("duckdb", "sqlite", "postgres")
ORDINARY: list[tuple[str, str, tuple[str, ...]]] = [
    ("SELECT region, SUM(revenue) AS total FROM sales GROUP BY region ORDER BY total DESC LIMIT 1", "1244.5", ALL),
    ("SELECT s.region, t.manager FROM sales s JOIN stores t ON s.region = t.region WHERE s.year = 2020", "Ada", ALL),
    ("SELECT s.*, t.manager FROM sales s LEFT JOIN stores t USING (region) WHERE t.manager IS NULL", "no rows", ALL),
    ("SELECT COUNT(*) AS n FROM sales, stores WHERE sales.region = stores.region", "n 3", ALL),
    ("SELECT region FROM sales GROUP BY region HAVING SUM(revenue) > 1000", "North", ALL),
    (
        "SELECT q.region, q.total FROM (SELECT region, SUM(revenue) AS total FROM sales GROUP BY 1) q ORDER BY q.total",
        "900",
        ALL,
    ),
    ("SELECT * FROM (SELECT region AS r, year FROM sales) AS q WHERE r = 'South'", "South", ALL),
    (
        "WITH a AS (SELECT region, SUM(revenue) AS t FROM sales GROUP BY region), b AS (SELECT AVG(t) AS m FROM a) "
        "SELECT a.region FROM a, b WHERE a.t > b.m",
        "North",
        ALL,
    ),
    ("WITH a(x, y) AS (SELECT region, revenue FROM sales) SELECT a.x FROM a WHERE a.y = 900", "South", ALL),
    (
        "WITH cur AS (SELECT SUM(revenue) AS t FROM sales WHERE year = 2020), old AS (SELECT SUM(revenue) AS t FROM "
        "sales WHERE year = 2019) SELECT ROUND(CAST((cur.t - old.t) / old.t * 100 AS DECIMAL(10, 2)), 1) AS g FROM cur, old",
        "-99.5",
        ALL,
    ),
    ("SELECT region FROM sales s WHERE revenue = (SELECT MAX(revenue) FROM sales t WHERE t.region = s.region)", "South", ALL),
    ("SELECT DISTINCT region FROM sales WHERE region IN (SELECT region FROM stores WHERE manager = 'Ada')", "North", ALL),
    ("SELECT region FROM stores st WHERE NOT EXISTS (SELECT 1 FROM sales s WHERE s.region = st.region)", "West", ALL),
    ("SELECT region, year FROM sales WHERE year BETWEEN 2019 AND 2019 AND region LIKE '%or%'", "North", ALL),
    ("SELECT year, RANK() OVER (ORDER BY SUM(revenue) DESC) AS place FROM sales GROUP BY year", "2019", ALL),
    (
        "SELECT region, SUM(revenue) OVER (PARTITION BY region ORDER BY year ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
        ") AS running FROM sales ORDER BY 2 DESC",
        "1244.5",
        ALL,
    ),
    (
        "SELECT region, LAG(revenue, 1) OVER w AS before FROM sales WINDOW w AS (PARTITION BY region ORDER BY year)",
        "1234.5",
        ALL,
    ),
    (
        "SELECT q.region FROM (SELECT region, ROW_NUMBER() OVER (PARTITION BY region ORDER BY revenue DESC) AS rn FROM sales) "
        "q WHERE q.rn = 1 ORDER BY region",
        "North",
        ALL,
    ),
    ("SELECT CASE WHEN revenue > 1000 THEN 'big' WHEN revenue > 100 THEN 'mid' ELSE 'small' END AS c FROM sales", "mid", ALL),
    ("SELECT COALESCE(NULLIF(region, 'North'), 'N') AS r FROM sales WHERE year = 2020", "N", ALL),
    ("SELECT UPPER(region) || '!' AS u, LENGTH(region) AS n FROM sales WHERE year = 2020", "NORTH!", ALL),
    ("SELECT REPLACE(LOWER(region), 'north', 'n') AS r FROM sales WHERE year = 2020", "r n", ALL),
    ("SELECT SUM(CASE WHEN year = 2019 THEN revenue ELSE 0 END) AS a, COUNT(DISTINCT region) AS b FROM sales", "2134.5", ALL),
    (
        "SELECT region FROM sales UNION SELECT region FROM stores EXCEPT SELECT 'North' FROM stores ORDER BY region",
        "West",
        ALL,
    ),
    (
        "(SELECT region FROM sales WHERE year = 2019 LIMIT 1) UNION ALL (SELECT 'x' FROM sales LIMIT 1)",
        "x",
        ("duckdb", "postgres"),
    ),
    ("SELECT EXTRACT(YEAR FROM opened) AS y FROM stores WHERE region = 'North'", "2001", ("duckdb", "postgres")),
    ("SELECT DATE_TRUNC('month', opened) AS m FROM stores WHERE region = 'North'", "2001-05-01", ("duckdb", "postgres")),
    ("SELECT region FROM stores WHERE opened < DATE '2001-12-31' AND opened >= '2001-01-01'", "North", ALL),
    ("SELECT opened + INTERVAL '1 month' AS m FROM stores WHERE region = 'North'", "2001-06-03", ("duckdb", "postgres")),
    ("SELECT opened + INTERVAL 3 DAY AS m FROM stores WHERE region = 'North'", "2001-05-06", ("duckdb",)),
    ("SELECT DATE_PART('dow', opened) AS d FROM stores WHERE region = 'North'", "d 4", ("duckdb", "postgres")),
    ("SELECT datediff('day', opened, DATE '2001-05-13') AS d FROM stores WHERE region = 'North'", "d 10", ("duckdb",)),
    ("SELECT strftime('%Y', opened) AS y FROM stores WHERE region = 'North'", "2001", ("sqlite",)),
    ("SELECT strftime(opened, '%Y') AS y FROM stores WHERE region = 'North'", "2001", ("duckdb",)),
    ("SELECT date(opened, '+1 day') AS y FROM stores WHERE region = 'North'", "2001-05-04", ("sqlite",)),
    ("SELECT julianday('2001-05-04') - julianday(opened) AS d FROM stores WHERE region = 'North'", "d 1", ("sqlite",)),
    ("SELECT to_char(opened, 'YYYY-MM') AS y FROM stores WHERE region = 'North'", "2001-05", ("postgres",)),
    ("SELECT AGE(DATE '2002-05-03', opened) AS y FROM stores WHERE region = 'North'", "365", ("postgres",)),
    ("SELECT revenue::numeric(10, 2) AS r, year::text AS y FROM sales WHERE year = 2020", "10.00", ("duckdb", "postgres")),
    ("SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY revenue) AS m FROM sales", "m 900", ("duckdb", "postgres")),
    ("SELECT median(revenue) AS m, mode(region) AS o FROM sales", "North", ("duckdb",)),
    ("SELECT arg_max(region, revenue) AS r FROM sales", "North", ("duckdb",)),
    ("SELECT region, COUNT(*) FILTER (WHERE year = 2019) AS n FROM sales GROUP BY region ORDER BY 1", "n 1", ALL),
    ("SELECT STRING_AGG(region, ', ' ORDER BY region) AS r FROM stores", "North, South, West", ("duckdb", "postgres")),
    ("SELECT GROUP_CONCAT(region) AS r FROM stores", "North,South,West", ("sqlite",)),
    ("SELECT region, year FROM sales QUALIFY ROW_NUMBER() OVER (PARTITION BY region ORDER BY year) = 1", "South", ("duckdb",)),
    ("FROM sales SELECT region, revenue WHERE year = 2020", "North", ("duckdb",)),
    ("SELECT * EXCLUDE (revenue) FROM sales WHERE year = 2020", "North", ("duckdb",)),
    ("SELECT region, SUM(revenue) AS t FROM sales GROUP BY ALL ORDER BY ALL", "1244.5", ("duckdb",)),
    ("SELECT revenue * 2 AS double, double + 1 AS more FROM sales WHERE year = 2020", "more 21", ("duckdb",)),
    (
        "SELECT region, SUM(revenue) AS t FROM sales GROUP BY ROLLUP (region) ORDER BY t DESC LIMIT 1",
        "2144.5",
        ("duckdb", "postgres"),
    ),
    ("SELECT TRIM(BOTH 'N' FROM region) AS t FROM sales WHERE year = 2020", "orth", ("duckdb", "postgres")),
    ("SELECT SUBSTRING(region, 1, 3) AS t FROM sales WHERE year = 2020", "Nor", ALL),
    ("SELECT public.sales.region FROM public.sales WHERE public.sales.year = 2020", "North", ("postgres",)),
    ("SELECT main.sales.region FROM main.sales WHERE sales.year = 2020", "North", ("duckdb", "sqlite")),
    ("SELECT region FROM sales ORDER BY revenue DESC FETCH FIRST 1 ROW ONLY", "North", ("duckdb", "postgres")),
    (
        "SELECT v.n, s.region FROM sales s JOIN (VALUES ('North', 1), ('South', 2)) AS v(r, n) ON v.r = s.region",
        "South",
        ("duckdb", "postgres"),
    ),
    ("SELECT s.region FROM (sales s JOIN stores t ON t.region = s.region) WHERE s.year = 2020", "North", ALL),
    ('SELECT "Region" FROM sales WHERE Year = 2020', "North", ("duckdb", "sqlite")),
    ("SELECT Region FROM SALES WHERE YEAR = 2020", "North", ALL),
    ("SELECT a.region FROM sales a JOIN sales b ON a.region = b.region AND a.year = b.year + 1", "North", ALL),
    ("SELECT MAX(CAST(revenue AS INTEGER)) % 100 AS m, ABS(-3) AS a, ROUND(2.567, 1) AS r FROM sales", "2.6", ALL),
    ("SELECT region FROM sales WHERE (year, region) IN (SELECT year, region FROM sales WHERE revenue < 100)", "North", ALL),
    ("SELECT CAST(region AS VARCHAR(100)) AS r, CAST(region AS CHAR(20)) AS c FROM sales WHERE year = 2020", "North", ALL),
]


@pytest.fixture(scope="module", params=["duckdb", "sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, DataAnalysis]]:
    with opened(request.param, tmp_path_factory.mktemp("shop"), fill_shop) as place:
        with_tables = DataAnalysis(place, tables=["sales", "stores"])
        yield request.param, with_tables
        with_tables.close()


@pytest.mark.parametrize(("sql", "expected", "dialects"), ORDINARY, ids=range(len(ORDINARY)))
def test_what_analysts_write_passes(
    shop: tuple[str, DataAnalysis], sql: str, expected: str, dialects: tuple[str, ...]
) -> None:
    dialect, action = shop
    if dialect in dialects:
        assert expected in ask(action, sql)
