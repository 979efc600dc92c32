"""Thresholds in conditions: found wherever they stand, and moved without touching the rest."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator import sql
from curator.sql.thresholds import moved, only_threshold, thresholds


@pytest.mark.parametrize(("condition", "expected"), [
    ("word_count < 50", [("word_count", "<", 50)]),
    ("duration < 3 OR duration > 30", [("duration", "<", 3), ("duration", ">", 30)]),
    ("NOT (a >= -0.5e1) OR 3 < b AND \"Q r\" BETWEEN 1 AND 2.5",
     [("a", ">=", -5), ("b", ">", 3), ('"Q r"', ">=", 1), ('"Q r"', "<=", 2.5)]),
    ("é = 'ü' AND b<7", [("b", "<", 7)]),
    ("abs(dc_offset) > 0.02", [("abs(dc_offset)", ">", 0.02)]),
    ("ratio > ratio_max OR NOT good OR text = 'a' OR n = 3", []),
    ("1 < 2", []),
])
def test_every_comparison_with_a_number_is_a_threshold(condition, expected):
    assert [(t.measure, t.operator, t.value) for t in thresholds(condition)] == expected


@pytest.mark.parametrize(("condition", "column"), [
    ("words<50", "words"), ("(50 > words)", "words"), ('"a b" >= 2', "a b"), ("NOT words < 50", None), ("words < 50 OR n = 1", None),
    ("n BETWEEN 1 AND 2", None), ("abs(n) < 1", None), ("(n < 5) < 2", None)])
def test_a_condition_that_is_one_comparison_is_told_from_others(condition, column):
    found = only_threshold(condition)
    assert (found.column if found else None) == column


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["<", "<=", ">", ">="]),
                          st.integers(-50, 50) | st.floats(-9, 9, allow_subnormal=False)), min_size=1, max_size=4),
       st.integers(0, 3), st.integers(-40, 40) | st.floats(-1e6, 1e6, allow_subnormal=False))
def test_a_moved_threshold_is_the_only_thing_that_changes(comparisons, which, value):
    condition = " OR ".join(f"{c} {o} {n!r}" for c, o, n in comparisons)
    before = thresholds(condition)
    which %= len(before)
    after = thresholds(moved(condition, before[which], value))
    assert [(t.measure, t.operator) for t in after] == [(t.measure, t.operator) for t in before]
    assert [t.value for t in after] == [float(value) if at == which else t.value for at, t in enumerate(before)]


def test_a_moved_condition_decides_by_the_new_number():
    table = pa.table({"words": [10, 20, 30, None]})
    old = "words < 15"
    new = moved(old, thresholds(old)[0], 25)
    assert new == "words < 25"
    assert sql.evaluate({"few": new}, table).to_pylist() == ["few", "few", None, None]
