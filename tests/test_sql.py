"""SQL over the columns of a batch: what an expression uses, what is refused before a run, what is true of which row."""

import datetime
import decimal
import math
import pickle

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator import sql
from curator.api.batch import Batch
from curator.api.errors import RecipeError
from curator.api.stage import Context
from curator.sql import parse
from curator.sql.parse import connection
from curator.stages import Drop, Map, Route

COLUMNS = {
    "n": pa.int64(), "f": pa.float64(), "text": pa.string(), "flag": pa.bool_(), "xs": pa.list_(pa.int64()), "day": pa.date32(),
    "s": pa.struct([("f", pa.int32()), ("deep", pa.struct([("g", pa.string())]))]), "raw": pa.binary(), "json": pa.string(),
    "map": pa.map_(pa.string(), pa.int64()), "odd name": pa.int32(), 'quo"ted': pa.int32(), "größe": pa.int32(),
    "select": pa.int32(), "half": pa.float16(), "unknown": None, "nothing": pa.null(), "cents": pa.decimal128(9, 2),
    "day_text": pa.dictionary(pa.int32(), pa.string()), "long": pa.large_string(),
}


@pytest.mark.parametrize(("expression", "columns"), [
    ("n < 5", {"n"}), ("n < 5 and lower(text) like '%n%'", {"n", "text"}), ("'n' = \"odd name\"", {"odd name"}),
    ('"quo""ted" > größe', {'quo"ted', "größe"}), ("Text = 1", {"Text"}), ("s.f > s.deep.g", {"s"}), ("s['f'] > 1", {"s"}),
    ("list_filter(xs, lambda x: x > n) = xs", {"xs", "n"}), ("list_reduce(xs, lambda a, b: a + b) > 1", {"xs"}),
    ("len([x + n for x in xs if x > f]) > 1", {"xs", "n", "f"}), ("json -> '$.a' = text", {"json", "text"}),
    ("xs.len() > text.lower().length()", {"xs", "text"}), ("s.deep.len()", {"s"}), ("main.length(text)", {"text"}),
    ("case when flag then n else f end", {"flag", "n", "f"}), ("n is null -- f\n", {"n"}), ("true", set()),
    ("x.x.x.x", {"x"}), ("list_transform(xs, lambda n: n + f)", {"xs", "f"}),
])
def test_columns_are_found_by_name_and_case_and_not_what_a_lambda_binds(expression, columns):
    assert sql.columns_of(expression) == columns


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12))
def test_any_name_can_be_a_column(name):
    quoted = '"' + name.replace('"', '""') + '"'
    assert sql.columns_of(f"{quoted} > 3") == {name}
    assert sql.evaluate({"hit": f"{quoted} > 3"}, pa.table({name: [1, 5]})).to_pylist() == [None, "hit"]


FITTING = """
n < 5; flag; not flag; text is null; text like '%x%'; text not ilike 'x%'; regexp_matches(text, '^a'); n between 1 and 5
n in (1, 2); list_contains(xs, 3); 3 in xs; xs[1] = 3; s.f > 3; s.deep.g = 'x'; map['k'] = 1; coalesce(n, 0) > 1
try_cast(text as int) > 3; day > date '2020-01-01'; year(day) = 2000; raw = 'x'::blob; octet_length(raw) > 3
json ->> 'a' = 'x'; (json -> '$.a')::varchar = 'x'; text || 'x' = 'y'; hash(text) % 10 = 0; cents > 1.5; half > 0.5
unknown > 3; unknown.deep.er = 'x'; nothing > 2; day_text = 'monday'; long = 'x'; n is distinct from 1; isnan(f)
list_sum(xs) > 1; [x for x in xs if x > n] = xs; struct_pack(a := n).a = 1; text = $$x,y$$; /* why */ flag; "select" = 1
levenshtein(text, 'a') < 3; xs.list_sum() > 1; greatest(n, f) > 1; text[1:3] = 'abc'; if(flag, true, false)
"""


@pytest.mark.parametrize("condition", [c.strip() for c in FITTING.replace("\n", ";").split(";") if c.strip()])
def test_what_duckdb_can_say_of_one_record_is_a_condition(condition):
    sql.check_all({"rule": condition}, COLUMNS)


WRONG = [
    ("n <", r"not valid SQL: syntax error at .*, at character [34]"),
    ("len(text)) > 3", r'syntax error at or near "\)", at character 10'),
    ("größe = 'é') > 3", r"syntax error at or near .*, at character \d+"),
    ("", "'' is no SQL expression: write one over columns"),
    (None, "None is no SQL expression"),
    (["n < 5"], "is no SQL expression"),
    ("n; drop table x", "Only SELECT statements"),
    ("n; select 2", "has a semicolon; write one expression"),
    ("n > 1;", "has a semicolon"),
    ("exists(select 1 from x)", "has a subquery"),
    ("n in (select 1)", "has a subquery; an expression sees one record only"),
    ("n > 1 from t", "is a query"),
    ("n > 1 order by f", "is a query"),
    ("n > 1 limit 3", "is a query"),
    ("n where flag", "is a query"),
    ("distinct n", "is a query"),
    ("n union select f", "is a query"),
    ("n > 1, f > 1", "is 2 expressions with commas between"),
    ("n > 1 as big", r"gives itself a name \(big\)"),
    ("*", "has a star; name the columns"),
    ("columns('n') > 1", "has a star"),
    ("? > 1", r"has a parameter \(\?, \$1\); write the value"),
    ("count(*) > 1", "'count_star' is an aggregate over many records"),
    ("sum(n) > 1", "'sum' is an aggregate over many records"),
    ("row_number() over () > 1", "has a window function"),
    ("unnest(xs) > 1", "'unnest' is a function that makes rows"),
    ("read_text('/etc/passwd') = 'x'", "'read_text' is a function that makes rows"),
    ("random() < 0.5", "'random' answers differently each time.*use the stage `sample`"),
    ("now() > day", "'now' answers differently each time"),
    ("uuid() = text", "'uuid' answers differently"),
    ("lenght(text) > 1", "there is no function 'lenght'; did you mean 'length'?"),
    ("Flag", "uses the column 'Flag', which is not there; did you mean 'flag'?"),
    ("txt = 'x'", "uses the column 'txt', which is not there; did you mean 'text'?"),
    ("word_count > 5", "'word_count', which is not there; there are cents, day, day_text, f, flag"),
    ("_row > 1", "'_row', which is not there"),
    ("n", "is BIGINT, not a condition"),
    ("text", "is VARCHAR, not a condition"),
    ("len(n) > 1", r"No function matches.*'len\(BIGINT\)'"),
    ("s.nope = 1", 'Could not find key "nope"'),
    ("\"N\" + n > 1", "uses columns that differ only in case: N, n; rename one of them before"),
]


@pytest.mark.parametrize(("condition", "problem"), WRONG)
def test_what_is_wrong_is_said_before_anything_runs(condition, problem):
    with pytest.raises(RecipeError, match=problem):
        sql.check_all({"rule": condition}, COLUMNS)


def test_the_condition_that_is_wrong_is_named():
    with pytest.raises(RecipeError, match=r"^short: `m < 5` uses the column 'm'"):
        sql.check_all({"fine": "n > 1", "short": "m < 5"}, {"n": pa.int64()})
    with pytest.raises(RecipeError, match=r"^short: `n <` is not valid SQL"):
        sql.needs({"fine": "n > 1", "short": "n <"})


def test_types_are_checked_only_where_they_are_known():
    sql.check_all({"rule": "len(unknown) > 1 and s.nope"}, {"unknown": None, "s": None})
    with pytest.raises(RecipeError, match="there is no function 'frob'"):
        sql.check_all({"rule": "frob(unknown)"}, {"unknown": None})


# -- conditions ---------------------------------------------------------------------------------------------------


def test_the_first_true_condition_in_order_gives_the_name():
    table = pa.table({"n": [1, 2, 3, None], "text": ["a", None, "c", "d"]})
    conditions = {"small": "n < 2", "odd": "n % 2 = 1", "late": "text > 'b'"}
    assert sql.evaluate(conditions, table).to_pylist() == ["small", None, "odd", "late"]
    assert sql.evaluate(dict(reversed(conditions.items())), table).to_pylist() == ["odd", None, "late", "late"]


def test_null_is_not_true_and_not_false_either():
    table = pa.table({"n": pa.array([None, 1], pa.int64())})
    assert sql.evaluate({"yes": "n > 0"}, table).to_pylist() == [None, "yes"]
    assert sql.evaluate({"no": "not (n > 0)"}, table).to_pylist() == [None, None]


def test_a_condition_is_not_looked_at_where_one_before_it_is_true():
    table = pa.table({"text": ["x", "5"]})
    conditions = {"no number": "not regexp_full_match(text, '[0-9]+')", "big": "text::int > 3"}
    assert sql.evaluate(conditions, table).to_pylist() == ["no number", "big"]


def test_a_row_that_cannot_be_evaluated_raises_and_names_the_condition():
    table = pa.table({"text": ["5", "x"]})
    with pytest.raises(ValueError, match=r"^big: `text::int > 3`: Could not convert string 'x' to INT32"):
        sql.evaluate({"fine": "text = 'y'", "big": "text::int > 3"}, table)
    assert sql.evaluate({"big": "text::int > 3"}, table.slice(0, 1)).to_pylist() == ["big"]


def test_conditions_without_columns_and_tables_without_rows_have_an_answer():
    assert sql.evaluate({"all": "true"}, pa.table({"n": [1, 2]})).to_pylist() == ["all", "all"]
    assert sql.evaluate({"all": "n > 1"}, pa.table({"n": pa.array([], pa.int64())})).to_pylist() == []
    assert sql.evaluate({}, pa.table({"n": [1]})).to_pylist() == [None]


def test_a_table_that_does_not_fit_is_a_recipe_error():
    with pytest.raises(RecipeError, match="short: `n < 5` uses the column 'n', which is not there; there are m"):
        sql.evaluate({"short": "n < 5"}, pa.table({"m": [1]}))
    with pytest.raises(RecipeError, match="short: `n` is BIGINT, not a condition"):
        sql.evaluate({"short": "n"}, pa.table({"n": [1]}))


def test_columns_that_differ_in_case_are_told_apart_one_by_one():
    table = pa.table({"Text": ["a"], "text": ["b"]})
    assert sql.evaluate({"upper": "Text = 'a'"}, table).to_pylist() == ["upper"]
    assert sql.evaluate({"lower": "text = 'b'"}, table).to_pylist() == ["lower"]
    with pytest.raises(RecipeError, match="differ only in case: Text, text"):
        sql.evaluate({"upper": "Text = 'a'", "lower": "text = 'b'"}, table)


def test_only_the_columns_that_are_used_are_looked_at():
    table = pa.table({"n": [1], "union": pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])})
    assert sql.evaluate({"one": "n = 1"}, table).to_pylist() == ["one"]


@given(st.lists(st.tuples(st.none() | st.integers(-5, 5), st.none() | st.text(max_size=2)), max_size=20), st.integers(1, 7))
def test_rows_stay_in_their_order_however_the_table_is_chunked(rows, size):
    numbers, texts = [n for n, _ in rows], [t for _, t in rows]
    chunks = [slice(at, at + size) for at in range(0, len(rows), size)] or [slice(0, 0)]
    table = pa.table({"n": pa.chunked_array([pa.array(numbers[c], pa.int64()) for c in chunks]),
                      "text": pa.chunked_array([pa.array(texts[c], pa.string()) for c in chunks])})
    expected = ["pos" if n is not None and n > 0 else "empty" if t == "" else None for n, t in rows]
    assert sql.evaluate({"pos": "n > 0", "empty": "text = ''"}, table).to_pylist() == expected


def test_many_rows_stay_in_order():
    table = pa.table({"n": np.arange(300_000)})
    found = sql.evaluate({"even": "n % 2 = 0"}, table)
    assert found.null_count == 150_000
    assert sql.compute({"m": "n + 1"}, table)["m"].to_numpy().tolist() == list(range(1, 300_001))


# -- expressions --------------------------------------------------------------------------------------------------


def test_expressions_give_columns_with_the_types_that_were_told():
    table = pa.table({"n": [1, 2], "text": ["a", None], "day": [datetime.date(2020, 1, 2)] * 2,
                      "cents": pa.array([decimal.Decimal("1.50"), None], pa.decimal128(9, 2))})
    expressions = {"twice": "n * 2", "half": "n * 0.5", "ratio": "n / 2", "up": "upper(text)", "pair": "[n, 7]",
                   "sum": "list_sum([n, n])", "year": "year(day)", "both": "{'a': n}", "price": "cents * 2",
                   "json": "to_json(n)", "none": "null::int"}
    got = sql.compute(expressions, table)
    assert {name: column.to_pylist()[0] for name, column in got.items()} == {
        "twice": 2, "half": 0.5, "ratio": 0.5, "up": "A", "pair": [1, 7], "sum": 2.0, "year": 2020, "both": {"a": 1},
        "price": decimal.Decimal("3.00"), "json": "1", "none": None}
    types = sql.types_of(expressions, {field.name: field.type for field in table.schema})
    assert {name: column.type for name, column in got.items()} == types
    assert (types["half"], types["sum"], types["price"]) == (pa.float64(), pa.float64(), pa.decimal128(18, 2))


def test_expressions_see_the_table_as_it_came():
    got = sql.compute({"a": "b", "b": "a"}, pa.table({"a": [1], "b": [2]}))
    assert (got["a"].to_pylist(), got["b"].to_pylist()) == ([2], [1])


def test_a_type_that_rests_on_an_unknown_one_is_unknown():
    assert sql.types_of({"a": "u + 1", "b": "n + 1"}, {"u": None, "n": pa.int64()}) == {"a": None, "b": pa.int64()}


def test_expressions_over_no_rows_have_their_types():
    got = sql.compute({"a": "n * 0.5"}, pa.table({"n": pa.array([], pa.int32())}))
    assert (got["a"].type, len(got["a"])) == (pa.float64(), 0)


def test_half_floats_can_be_read():
    assert sql.compute({"a": "h * 2"}, pa.table({"h": pa.array([0.5], pa.float16())}))["a"].to_pylist() == [1.0]


def test_nan_is_greater_than_any_number():
    table = pa.table({"f": [math.nan, 0.1]})
    assert sql.evaluate({"high": "f > 0.5"}, table).to_pylist() == ["high", None]
    assert sql.evaluate({"high": "f > 0.5 and not isnan(f)"}, table).to_pylist() == [None, None]


# -- safety -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("statement", [
    "ATTACH '/tmp/x.db'", "COPY (SELECT 1) TO '/tmp/x.csv'", "INSTALL httpfs", "SET threads = 4",
    "SELECT * FROM read_text('/etc/hostname')", "SET enable_external_access = true"])
def test_the_connection_reaches_no_file_and_cannot_be_unlocked(statement):
    import duckdb

    from curator.sql.parse import connection

    with pytest.raises(duckdb.Error, match=r"disabled|Cannot change"):
        connection().execute(statement).fetchall()


def test_variables_of_python_cannot_be_read():
    secret = pa.table({"n": [1]})
    with pytest.raises(RecipeError, match="has a subquery"):
        sql.columns_of("(select n from secret) = 1")
    assert secret.num_rows == 1


def test_a_recipe_error_survives_pickling():
    with pytest.raises(RecipeError) as caught:
        sql.check_all({"rule": "m < 5"}, {"n": pa.int64()})
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_a_connection_that_was_let_go_is_closed_and_the_next_use_makes_another():
    before = connection()
    sql.let_go()
    with pytest.raises(duckdb.ConnectionException):
        before.sql("SELECT 1")
    assert sql.evaluate({"small": "n < 5"}, pa.table({"n": [1, 9]})).to_pylist() == ["small", None]
    assert connection() is not before


@pytest.mark.parametrize("made", [Drop({"short": "length(lower(text)) < 2", "all": "true"}), Map({"n": "length(text)"}),
                                  Route({"high": "length(text) > 1"})], ids=lambda stage: stage.name)
def test_a_worker_does_not_parse_what_was_parsed_where_its_stage_was_made(made):
    sent = pickle.dumps(made)
    parse._parsed.cache_clear()
    parse.tree_of.cache_clear()
    stage = pickle.loads(sent)
    stage.setup(Context())
    stage.process(Batch(pa.table({"text": ["a", "bc"]})))
    assert parse.tree_of.cache_info().misses == 0
