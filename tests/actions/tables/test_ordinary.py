"""What analysts write: joins, windows, dates, nested queries pass the guard on every database, and give what they should."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from langgraph_convcoa.actions.tables.action import DataAnalysis
from tests.actions.tables.places import ask, fill_shop, opened

pytest.importorskip("duckdb")
pytest.importorskip("sqlglot")
pytest.importorskip("sqlalchemy")

DIALECTS = {"D": "duckdb", "S": "sqlite", "P": "postgres"}
ORDINARY = """\
DSP | 1244.5 | SELECT region, SUM(revenue) AS total FROM sales GROUP BY region ORDER BY total DESC LIMIT 1
DSP | Ada | SELECT s.region, t.manager FROM sales s JOIN stores t ON s.region = t.region WHERE s.year = 2020
DSP | no rows | SELECT s.*, t.manager FROM sales s LEFT JOIN stores t USING (region) WHERE t.manager IS NULL
DSP | n 3 | SELECT COUNT(*) AS n FROM sales, stores WHERE sales.region = stores.region
DSP | North | SELECT region FROM sales GROUP BY region HAVING SUM(revenue) > 1000
DSP | 900 | SELECT q.region, q.total FROM (SELECT region, SUM(revenue) AS total FROM sales GROUP BY 1) q ORDER BY q.total
DSP | South | SELECT * FROM (SELECT region AS r, year FROM sales) AS q WHERE r = 'South'
DSP | North | WITH a AS (SELECT region, SUM(revenue) AS t FROM sales GROUP BY region), b AS (SELECT AVG(t) AS m FROM a) \
SELECT a.region FROM a, b WHERE a.t > b.m
DSP | South | WITH a(x, y) AS (SELECT region, revenue FROM sales) SELECT a.x FROM a WHERE a.y = 900
DSP | -99.5 | WITH cur AS (SELECT SUM(revenue) AS t FROM sales WHERE year = 2020), old AS (SELECT SUM(revenue) AS t FROM \
sales WHERE year = 2019) SELECT ROUND(CAST((cur.t - old.t) / old.t * 100 AS DECIMAL(10, 2)), 1) AS g FROM cur, old
DSP | South | SELECT region FROM sales s WHERE revenue = (SELECT MAX(revenue) FROM sales t WHERE t.region = s.region)
DSP | North | SELECT DISTINCT region FROM sales WHERE region IN (SELECT region FROM stores WHERE manager = 'Ada')
DSP | West | SELECT region FROM stores st WHERE NOT EXISTS (SELECT 1 FROM sales s WHERE s.region = st.region)
DSP | North | SELECT region, year FROM sales WHERE year BETWEEN 2019 AND 2019 AND region LIKE '%or%'
DSP | 2019 | SELECT year, RANK() OVER (ORDER BY SUM(revenue) DESC) AS place FROM sales GROUP BY year
DSP | 1244.5 | SELECT region, SUM(revenue) OVER (PARTITION BY region ORDER BY year ROWS BETWEEN UNBOUNDED PRECEDING AND \
CURRENT ROW) AS running FROM sales ORDER BY 2 DESC
DSP | 1234.5 | SELECT region, LAG(revenue, 1) OVER w AS before FROM sales WINDOW w AS (PARTITION BY region ORDER BY year)
DSP | North | SELECT q.region FROM (SELECT region, ROW_NUMBER() OVER (PARTITION BY region ORDER BY revenue DESC) AS rn FROM \
sales) q WHERE q.rn = 1 ORDER BY region
DSP | mid | SELECT CASE WHEN revenue > 1000 THEN 'big' WHEN revenue > 100 THEN 'mid' ELSE 'small' END AS c FROM sales
DSP | N | SELECT COALESCE(NULLIF(region, 'North'), 'N') AS r FROM sales WHERE year = 2020
DSP | NORTH! | SELECT UPPER(region) || '!' AS u, LENGTH(region) AS n FROM sales WHERE year = 2020
DSP | r n | SELECT REPLACE(LOWER(region), 'north', 'n') AS r FROM sales WHERE year = 2020
DSP | 2134.5 | SELECT SUM(CASE WHEN year = 2019 THEN revenue ELSE 0 END) AS a, COUNT(DISTINCT region) AS b FROM sales
DSP | West | SELECT region FROM sales UNION SELECT region FROM stores EXCEPT SELECT 'North' FROM stores ORDER BY region
DP | x | (SELECT region FROM sales WHERE year = 2019 LIMIT 1) UNION ALL (SELECT 'x' FROM sales LIMIT 1)
DP | 2001 | SELECT EXTRACT(YEAR FROM opened) AS y FROM stores WHERE region = 'North'
DP | 2001-05-01 | SELECT DATE_TRUNC('month', opened) AS m FROM stores WHERE region = 'North'
DSP | North | SELECT region FROM stores WHERE opened < DATE '2001-12-31' AND opened >= '2001-01-01'
DP | 2001-06-03 | SELECT opened + INTERVAL '1 month' AS m FROM stores WHERE region = 'North'
D | 2001-05-06 | SELECT opened + INTERVAL 3 DAY AS m FROM stores WHERE region = 'North'
DP | d 4 | SELECT DATE_PART('dow', opened) AS d FROM stores WHERE region = 'North'
D | d 10 | SELECT datediff('day', opened, DATE '2001-05-13') AS d FROM stores WHERE region = 'North'
S | 2001 | SELECT strftime('%Y', opened) AS y FROM stores WHERE region = 'North'
D | 2001 | SELECT strftime(opened, '%Y') AS y FROM stores WHERE region = 'North'
S | 2001-05-04 | SELECT date(opened, '+1 day') AS y FROM stores WHERE region = 'North'
S | d 1 | SELECT julianday('2001-05-04') - julianday(opened) AS d FROM stores WHERE region = 'North'
P | 2001-05 | SELECT to_char(opened, 'YYYY-MM') AS y FROM stores WHERE region = 'North'
P | 365 | SELECT AGE(DATE '2002-05-03', opened) AS y FROM stores WHERE region = 'North'
DP | 10.00 | SELECT revenue::numeric(10, 2) AS r, year::text AS y FROM sales WHERE year = 2020
DP | m 900 | SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY revenue) AS m FROM sales
D | North | SELECT median(revenue) AS m, mode(region) AS o FROM sales
D | North | SELECT arg_max(region, revenue) AS r FROM sales
DSP | n 1 | SELECT region, COUNT(*) FILTER (WHERE year = 2019) AS n FROM sales GROUP BY region ORDER BY 1
DP | North, South, West | SELECT STRING_AGG(region, ', ' ORDER BY region) AS r FROM stores
S | North,South,West | SELECT GROUP_CONCAT(region) AS r FROM stores
D | South | SELECT region, year FROM sales QUALIFY ROW_NUMBER() OVER (PARTITION BY region ORDER BY year) = 1
D | North | FROM sales SELECT region, revenue WHERE year = 2020
D | North | SELECT * EXCLUDE (revenue) FROM sales WHERE year = 2020
D | 1244.5 | SELECT region, SUM(revenue) AS t FROM sales GROUP BY ALL ORDER BY ALL
D | more 21 | SELECT revenue * 2 AS double, double + 1 AS more FROM sales WHERE year = 2020
DP | 2144.5 | SELECT region, SUM(revenue) AS t FROM sales GROUP BY ROLLUP (region) ORDER BY t DESC LIMIT 1
DP | orth | SELECT TRIM(BOTH 'N' FROM region) AS t FROM sales WHERE year = 2020
DSP | Nor | SELECT SUBSTRING(region, 1, 3) AS t FROM sales WHERE year = 2020
P | North | SELECT public.sales.region FROM public.sales WHERE public.sales.year = 2020
DS | North | SELECT main.sales.region FROM main.sales WHERE sales.year = 2020
DP | North | SELECT region FROM sales ORDER BY revenue DESC FETCH FIRST 1 ROW ONLY
DP | South | SELECT v.n, s.region FROM sales s JOIN (VALUES ('North', 1), ('South', 2)) AS v(r, n) ON v.r = s.region
DSP | North | SELECT s.region FROM (sales s JOIN stores t ON t.region = s.region) WHERE s.year = 2020
DS | North | SELECT "Region" FROM sales WHERE Year = 2020
DSP | North | SELECT Region FROM SALES WHERE YEAR = 2020
DSP | North | SELECT a.region FROM sales a JOIN sales b ON a.region = b.region AND a.year = b.year + 1
DSP | 2.6 | SELECT MAX(CAST(revenue AS INTEGER)) % 100 AS m, ABS(-3) AS a, ROUND(2.567, 1) AS r FROM sales
DSP | North | SELECT region FROM sales WHERE (year, region) IN (SELECT year, region FROM sales WHERE revenue < 100)
DSP | North | SELECT CAST(region AS VARCHAR(100)) AS r, CAST(region AS CHAR(20)) AS c FROM sales WHERE year = 2020
DSP | 714.83 | SELECT ROUND(CAST(AVG(revenue) AS DECIMAL(10, 2)), 2) FROM sales;
"""
"""A line is the databases that have it by their first letters, a part of what it gives, and the statement."""
ROWS = [line.split(" | ", 2) for line in ORDINARY.splitlines()]
ROWS.append(["DSP", "North", "```sql\nselect Region from Sales where YEAR = 2020 -- the last\n```"])


@pytest.fixture(scope="module", params=["duckdb", "sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def shop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, DataAnalysis]]:
    with opened(request.param, tmp_path_factory.mktemp("shop"), fill_shop) as place:
        with_tables = DataAnalysis(place, tables=["sales", "stores"])
        yield request.param, with_tables
        with_tables.close()


@pytest.mark.parametrize(("databases", "expected", "sql"), ROWS, ids=range(len(ROWS)))
def test_what_analysts_write_passes(shop: tuple[str, DataAnalysis], databases: str, expected: str, sql: str) -> None:
    dialect, action = shop
    if dialect in [DIALECTS[letter] for letter in databases]:
        assert expected in ask(action, sql)
