import math
from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document

from langgraph_convcoa.errors import InputError
from langgraph_convcoa.retrieval.filters import allowed_passages, predicate

PASSAGES = [
    Document("a", id="a", metadata={"year": 2016, "tags": ["x", "y"], "lang": "en", "score": 0.5, "day": date(2016, 3, 1)}),
    Document("b", id="b", metadata={"year": None, "lang": "de", "tags": []}),
    Document("c", id="c", metadata={"year": 2020.5, "lang": "english", "place": {"city": "Graz"}, "ok": True}),
    Document("d", id="d"),
]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({}, "abcd"),
        ({"year": 2016}, "a"),
        ({"year": 2016.0}, "a"),
        ({"year": {2016, 1}}, "a"),
        ({"year": (2016, 2020.5)}, "ac"),
        ({"year": []}, ""),
        ({"year": None}, "bd"),
        ({"year": [None]}, "bd"),
        ({"other": 1}, ""),
        ({"tags": [["x", "y"]]}, "a"),
        ({"tags": {"x"}}, ""),
        ({"place": {"city": "Graz"}}, "c"),
        ({"place": {}}, ""),
        (lambda passage: passage.id == "b", "b"),
        ({"year": {"$eq": 2016}}, "a"),
        ({"tags": {"$eq": ["x", "y"]}}, "a"),
        ({"place": {"$eq": {"city": "Graz"}}}, "c"),
        ({"year": {"$ne": 2016}}, "bcd"),
        ({"year": {"$gt": 2016}}, "c"),
        ({"year": {"$gte": 2016}}, "ac"),
        ({"year": {"$lt": 2020.5}}, "a"),
        ({"year": {"$lte": 2020.5}}, "ac"),
        ({"year": {"$gt": 2000, "$lt": 2017}}, "a"),
        ({"year": {"$gt": -math.inf}}, "ac"),
        ({"year": {"$between": [2016, 2017]}}, "a"),
        ({"year": {"$between": (2017, 2016)}}, ""),
        ({"lang": {"$gt": "de"}}, "ac"),
        ({"lang": {"$lte": "en"}}, "ab"),
        ({"day": {"$gte": date(2016, 1, 1)}}, "a"),
        ({"day": {"$lt": date(2016, 1, 1)}}, ""),
        ({"lang": {"$in": ["en", "de"]}}, "ab"),
        ({"lang": {"$nin": ["en", "de"]}}, "cd"),
        ({"lang": {"$in": []}}, ""),
        ({"lang": {"$nin": []}}, "abcd"),
        ({"tags": {"$in": [[]]}}, "b"),
        ({"tags": {"$contains": "x"}}, "a"),
        ({"lang": {"$contains": "en"}}, "ac"),
        ({"year": {"$contains": 2}}, ""),
        ({"year": {"$exists": True}}, "abc"),
        ({"year": {"$exists": False}}, "d"),
        ({"lang": {"$not": {"$eq": "en"}}}, "bcd"),
        ({"lang": {"$not": "en"}}, "bcd"),
        ({"lang": {"$not": ["en", "de"]}}, "cd"),
        ({"year": {"$not": {"$gt": 2016}}}, "abd"),
        ({"$and": [{"lang": "en"}, {"year": 2016}]}, "a"),
        ({"$or": [{"lang": "de"}, {"year": {"$gt": 2016}}]}, "bc"),
        ({"$not": {"lang": "en"}}, "bcd"),
        ({"$not": {}}, ""),
        ({"$not": {"$or": [{"lang": "en"}, {"lang": "de"}]}}, "cd"),
        ({"$or": [{"lang": "de"}, {"$and": [{"ok": True}, {"place": {"$exists": True}}]}]}, "bc"),
        ({"$or": [lambda passage: passage.id == "d", {"lang": "de"}]}, "bd"),
        ({"lang": "en", "$or": [{"year": 1}, {"year": 2016}]}, "a"),
        ({"$and": [{"lang": "en"}, {"lang": "de"}]}, ""),
        ({"$and": [{"ok": {"$exists": False}}, {"score": {"$lt": 1}}]}, "a"),
    ],
)
def test_conditions(condition, expected):
    mask = allowed_passages(PASSAGES, condition)
    assert "".join(passage.id for passage, there in zip(PASSAGES, mask, strict=True) if there) == expected


def test_no_condition_allows_all():
    assert allowed_passages(PASSAGES, None) is None


def test_an_empty_memory():
    assert allowed_passages([], {"a": 1}).shape == (0,)


def nested(levels):
    condition = {"a": 1}
    for _ in range(levels):
        condition = {"$not": condition}
    return condition


def nested_in_a_field(levels):
    condition = 1
    for _ in range(levels):
        condition = {"$not": condition}
    return {"a": condition}


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ({"year": {"$regex": "2"}}, r"'\$regex' under 'year' is unknown; known are \$eq, .*\$exists"),
        ({"year": {"$GT": 2}}, r"'\$GT' under 'year' is unknown"),
        ({"year": {"$gt": 2, "to": 3}}, "'to' under 'year' is unknown"),
        ({"year": {"$and": [{"$gt": 2}]}}, r"'\$and' under 'year' is unknown"),
        ({"$nor": [{"a": 1}]}, r"'\$nor' is not one of filters; known are \$and, \$or, \$not"),
        ({"$gt": 3}, r"'\$gt' is not one of filters; it belongs to a field"),
        ({"$and": {"a": 1}}, r"\$and takes a list of filters, not {'a': 1}"),
        ({"$or": []}, r"\$or takes a list of filters"),
        ({"$or": [3]}, "a mapping or a function of a document, not the number 3"),
        ({"$not": ["a"]}, "a mapping or a function of a document"),
        ({"year": {"$gt": math.nan}}, r"\$gt under 'year' takes a number, a text or a date, not nan"),
        ({"year": {"$gt": None}}, r"\$gt under 'year' takes a number"),
        ({"year": {"$lte": True}}, r"\$lte under 'year' takes a number"),
        ({"year": {"$lt": [1]}}, r"\$lt under 'year' takes a number"),
        ({"year": {"$between": [1, math.nan]}}, r"\$lte under 'year' takes a number"),
        ({"year": {"$between": 3}}, r"\$between under 'year' takes two bounds, not the number 3"),
        ({"year": {"$in": 3}}, r"\$in under 'year' takes a list of values, not the number 3"),
        ({"year": {"$nin": "abc"}}, r"\$nin under 'year' takes a list of values, not the text 'abc'"),
        ({"year": {"$exists": 1}}, r"\$exists under 'year' takes True or False"),
        ({3: 1}, "by text, not by the number 3"),
        (["year"], "a mapping or a function of a document, not \\['year'\\]"),
        ("year", "a mapping or a function"),
        (nested(2000), "nested more than 50 levels"),
        (nested_in_a_field(2000), "nested more than 50 levels"),
    ],
)
def test_what_is_no_filter_is_told_before_any_passage_is_read(condition, message):
    with pytest.raises(InputError, match=message) as caught:
        predicate(condition)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("2016", 2015),
        (2016, "2015"),
        (True, 0),
        (["x"], "a"),
        (date(2016, 1, 1), "2016-01-01"),
        (datetime(2016, 1, 1), datetime(2016, 1, 1, tzinfo=UTC)),
        (date(2016, 1, 1), datetime(2016, 1, 1)),
    ],
)
def test_values_without_an_order_are_told(value, wanted):
    passes = predicate({"year": {"$gt": wanted}})
    with pytest.raises(InputError, match=r"'year' of the passage 'p' is .*these have no order") as caught:
        passes(Document("x", id="p", metadata={"year": value}))
    assert "\n" not in str(caught.value)
    # A condition before it in a mapping keeps such passages out.
    assert not predicate({"kind": "n", "year": {"$gt": wanted}})(Document("x", id="p", metadata={"year": value}))


VALUES = st.one_of(st.none(), st.integers(-3, 3), st.floats(-3, 3))


@given(st.dictionaries(st.sampled_from("abc"), VALUES), st.sampled_from("abc"), st.integers(-3, 3))
def test_operators_and_their_opposites(metadata, name, bound):
    document = Document("x", metadata=metadata)

    def holds(condition):
        return predicate(condition)(document)

    value = metadata.get(name)
    assert holds({name: {"$eq": bound}}) != holds({name: {"$ne": bound}})
    assert holds({name: {"$in": [bound, 0]}}) != holds({name: {"$nin": [bound, 0]}})
    assert holds({name: {"$gt": bound}}) == (value is not None and value > bound)
    assert holds({name: {"$gte": bound}}) == (holds({name: {"$gt": bound}}) or holds({name: bound}))
    assert holds({name: {"$exists": name in metadata}})
    assert holds({"$not": {name: {"$lt": bound}}}) == (not holds({name: {"$lt": bound}}))
    one, other = {name: {"$gt": bound}}, {"a": {"$lte": 0}}
    assert holds({"$or": [one, other]}) == (not holds({"$and": [{"$not": one}, {"$not": other}]}))


def test_a_number_beyond_every_float_is_compared_as_a_number() -> None:
    assert predicate({"n": {"$lt": 10**400}})(Document("a", metadata={"n": 3}))
    assert not predicate({"n": {"$lt": 3}})(Document("a", metadata={"n": 10**400}))
