"""Which record is the best of several, under every keep order."""

import datetime
import math

import numpy as np
import pyarrow as pa
import pytest
from curator_dedup.shared.keep import Keep
from hypothesis import given
from hypothesis import strategies as st

from curator.api.errors import RecipeError
from curator.api.tasks import Batch

NOON = datetime.datetime(2020, 1, 1, 12, tzinfo=datetime.UTC)
STAMP = NOON.timestamp() * 1e6


def batch(**columns):
    rows = len(next(iter(columns.values())))
    return Batch(pa.table({"id": [str(i) for i in range(rows)], "source": ["s"] * rows} | columns))


def ranks(keep, **columns):
    return Keep.parse(keep).ranks(batch(**columns))[:, 0].tolist()


INF = math.inf


@pytest.mark.parametrize(("keep", "values", "expected"), [
    ("longest", ["ä", "", None, "abc"], [-1, 0, INF, -3]),
    ("longest", [b"\xc3\xa4", None], [-2, INF]),
    ("longest", [[1, 2], [], None], [-2, 0, INF]),
    ({"by": "text"}, [1.5, math.nan, None, -0.0, -2], [-1.5, INF, INF, 0, 2]),
    ({"by": "text", "order": "asc"}, [3, None, 1], [3, INF, 1]),
    ({"by": "text"}, [True, None, False], [-1, INF, 0]),
    ({"by": "text"}, [None, None], [INF, INF]),
    ({"newest": "text"}, [NOON, None], [-STAMP, INF]),
    ({"newest": "text"}, [NOON.date(), None], [-STAMP + 12 * 3600e6, INF]),
    ({"newest": "text"}, [2021, 2020, None], [-2021, -2020, INF]),
    ({"by": "text", "order": "asc"}, [NOON, None], [STAMP, INF]),
])
def test_smaller_ranks_are_better_and_what_has_no_value_comes_last(keep, values, expected):
    assert ranks(keep, text=values) == expected
    assert ranks(keep, text=pa.chunked_array([pa.array(values).dictionary_encode()] if not isinstance(values[0], list)
                                             else [pa.array(values)])) == expected


@pytest.mark.parametrize(("text", "microseconds"), [
    ("2020-01-01T12:00:00Z", STAMP), ("2020-01-01 12:00:00", STAMP), ("2020-01-01T12:00", STAMP), (" 2020-01-01t12:00z ", STAMP),
    ("2020-01-01T14:00:00+02:00", STAMP), ("2020-01-01T10:30:00-0130", STAMP), ("2020-01-01T14+02", None),
    ("2020-01-01", STAMP - 12 * 3600e6), ("2020-01-01T12:00:00.25Z", STAMP + 250_000),
    ("2020-01-01T12:00:00.1234567", STAMP + 123_456),
    ("1969-12-31T23:59:59Z", -1e6), ("2020-13-01", None), ("yesterday", None), ("", None),
])
def test_texts_in_iso_8601_are_times(text, microseconds):
    assert ranks({"newest": "date"}, date=[text, None]) == [INF if microseconds is None else -microseconds, INF]


@given(st.lists(st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2200, 1, 1)), min_size=2, max_size=9, unique=True))
def test_times_and_their_texts_have_one_order(times):
    of_texts = ranks({"newest": "date"}, date=[time.isoformat() for time in times])
    assert of_texts == ranks({"newest": "date"}, date=pa.array(times, pa.timestamp("us")))
    assert np.argsort(of_texts).tolist() == sorted(range(len(times)), key=times.__getitem__, reverse=True)


def test_infinite_values_have_a_rank_before_those_without_a_value():
    assert ranks({"by": "q"}, q=[-INF, None, INF])[0] < INF
    assert np.argsort(ranks({"by": "q"}, q=[-INF, math.nan, INF, 0.0])).tolist() == [2, 3, 0, 1]


def test_sources_rank_by_the_first_pattern_that_matches():
    sources = ["web/a.jsonl", "wiki/en/b", None, "books", "wiki"]
    assert ranks({"sources": ["wiki/*", "web/?.jsonl"], "column": "origin"}, origin=sources) == [1, 0, INF, 2, 2]
    assert ranks({"sources": ["t", "s"]}, x=[0, 0]) == [1, 1]
    assert Keep.parse({"sources": ["t"]}).needs() == set()


def test_several_orders_are_compared_one_after_the_other():
    keep = Keep.parse([{"by": "q"}, "longest", {"newest": "d"}, "none"])
    assert (keep.needs(), keep.drops_all) == ({"q", "text", "d"}, True)
    assert keep.ranks(batch(q=[1, 2], text=["a", None], d=[5, 6])).tolist() == [[-1, -1, -5], [-2, INF, -6]]


def test_the_first_record_needs_no_rank():
    for word, drops_all in (("first", False), ("none", True)):
        keep = Keep.parse(word)
        assert (keep.needs(), keep.drops_all, keep.ranks(batch(x=[1, 2])).shape) == (set(), drops_all, (2, 0))
    assert Keep.parse(["longest", "first"]) == Keep.parse("longest")


@pytest.mark.parametrize("keep", ["longest", {"newest": "text"}, {"sources": ["a"], "column": "text"}])
def test_no_rows_have_no_ranks(keep):
    assert Keep.parse(keep).ranks(batch(text=pa.array([], pa.string()))).shape == (0, 1)


@pytest.mark.parametrize(("keep", "told"), [
    ("longst", "did you mean 'longest'"), ("newest", "did you mean {newest: …}"), ("Quality", "there are first, longest"),
    (None, "there are first"), ([], "empty list"), (5, "there are first"), ({"long": "x"}, "did you mean 'longest'"),
    ({"by": "q", "ordr": "asc"}, "'ordr' does not go with 'by'"), ({"by": "q", "order": "up"}, "desc or asc, got 'up'"),
    ({"sources": "a"}, "a list of patterns"), (["first", "longest"], "put 'first' last"),
    (["none", {"by": "q"}], "put 'none' last"), ({"by": "a", "newest": "b"}, "write a list"),
    ({"by": 5}, "name of a column, got 5"), ({"newest": "a", "order": "asc"}, "order"),
])
def test_what_is_no_keep_order_is_refused(keep, told):
    with pytest.raises(RecipeError, match=r"^keep: ") as error:
        Keep.parse(keep)
    assert told in str(error.value)


@pytest.mark.parametrize(("keep", "kind", "fine"), [
    ({"by": "c"}, pa.string(), False), ({"by": "c"}, pa.float32(), True), ({"by": "c"}, pa.list_(pa.int8()), False),
    ({"newest": "c"}, pa.string(), True), ({"newest": "c"}, pa.binary(), False),
    ({"newest": "c"}, pa.timestamp("ns", "UTC"), True),
    ({"longest": "c"}, pa.int64(), False), ({"longest": "c"}, pa.list_(pa.int8()), True),
    ({"sources": ["a"], "column": "c"}, pa.int64(), False), ({"sources": ["a"], "column": "c"}, pa.large_string(), True),
    ({"by": "c"}, pa.dictionary(pa.int32(), pa.string()), False), ({"by": "c"}, None, True), ({"by": "c"}, pa.null(), True),
])
def test_columns_without_such_an_order_are_refused_before_the_run(keep, kind, fine):
    if fine:
        Keep.parse(keep).check({"c": kind})
    else:
        with pytest.raises(RecipeError, match="'c' is"):
            Keep.parse(keep).check({"c": kind})
