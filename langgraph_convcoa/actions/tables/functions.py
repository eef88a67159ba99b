"""What a query may be made of: the allow-lists of the SQL guard. What is not here is refused."""

from __future__ import annotations

CLAUSES = frozenset(
    """Select From Join Where Group Having Order Ordered Limit Offset Fetch Table TableAlias Column Identifier Literal Star
    Alias Null Boolean Paren Neg Not Add Sub Mul Div IntDiv Mod DPipe EQ NEQ GT GTE LT LTE NullSafeEQ NullSafeNEQ Is
    In Between Like ILike Escape Glob CTE With Subquery Union Except Intersect Distinct Window WindowSpec Qualify
    Filter WithinGroup IgnoreNulls RespectNulls Interval IntervalSpan Var DataType DataTypeParam Tuple Values Cube
    Rollup GroupingSets Bracket Dot Any All LimitOptions JSONPath JSONPathKey JSONPathRoot JSONPathSubscript""".split()  # noqa: SIM905
)
"""sqlglot's classes of clauses, operators and names. Not here: INTO, locks, parameters, variables, table functions."""

FUNCTIONS = frozenset(
    """Sum Count CountIf Avg Min Max Median Mode Quantile ApproxQuantile PercentileCont PercentileDisc ApproxDistinct Stddev
    StddevPop StddevSamp Variance VariancePop Corr CovarPop CovarSamp AnyValue ArgMax ArgMin First Last GroupConcat
    LogicalAnd LogicalOr FirstValue LastValue NthValue Lag Lead RowNumber Rank DenseRank PercentRank CumeDist Ntile
    Abs Sign Round Ceil Floor Trunc Sqrt Cbrt Exp Ln Log Pow Greatest Least Coalesce Nullif If Case Cast TryCast
    Exists And Or Xor Typeof Lower Upper Initcap Length Trim Substring Left Right StrPosition Concat ConcatWs Replace
    StartsWith EndsWith Contains SplitPart Year Month Quarter Week WeekOfYear Day DayOfWeek DayOfWeekIso DayOfYear
    DayOfMonth Hour Minute Second Monthname Dayname LastDay Extract DateTrunc TimestampTrunc DateDiff TimestampDiff
    DateAdd DateSub Date Datetime DateFromParts ToDays TimeToUnix TsOrDsToDate TsOrDsToTimestamp TsOrDsAdd TsOrDsDiff
    TimeToStr StrToTime StrToDate ToChar ToNumber CurrentDate CurrentTimestamp JSONExtract JSONExtractScalar""".split()  # noqa: SIM905
)
"""sqlglot's classes of functions: aggregates, windows, arithmetic, text, dates. None reads files, settings or the system,
waits or writes."""

OTHER_FUNCTIONS = frozenset(
    "age date date_part datetime ifnull julianday mean prefix suffix total unixepoch time".split()  # noqa: SIM905
)
"""Further functions, which sqlglot has no class for."""

TYPES = frozenset(
    """TINYINT UTINYINT SMALLINT USMALLINT INT UINT MEDIUMINT BIGINT UBIGINT INT128 UINT128 INT256 FLOAT DOUBLE DECIMAL
    BIGDECIMAL CHAR NCHAR VARCHAR NVARCHAR TEXT BOOLEAN DATE DATE32 TIME TIMETZ TIMESTAMP TIMESTAMPTZ TIMESTAMPNTZ
    TIMESTAMPLTZ TIMESTAMP_S TIMESTAMP_MS TIMESTAMP_NS DATETIME DATETIME2 INTERVAL UUID YEAR""".split()  # noqa: SIM905
)
"""Types that a value may be cast to. Not here: PostgreSQL's regclass and its like, which look names up in the catalogue."""
