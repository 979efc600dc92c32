"""Values in recipes: what is taken as which type, and what is refused."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator.front import from_source, load
from curator.recipe import dump
from tests.recipe.recipe_stages import Jsonl, ToParquet, Typed, Window, graph, problems, step, wrong


@pytest.mark.parametrize(("text", "name", "value"), [
    ("8", "text", "8"), ("no", "text", "no"), ("1e3", "text", "1e3"), ("2024-01-01", "text", "2024-01-01"), ("''", "text", ""),
    ("8", "whole", 8), ("-8", "whole", -8), ("1_000_000", "whole", 1000000), ("8", "number", 8.0), ("1e-3", "number", 0.001),
    (".inf", "number", float("inf")), ("yes", "switch", True), ("true", "switch", True), ("off", "switch", False),
    ("exact", "mode", "exact"), ("3", "mode", 3), ("[no, 1]", "names", ["no", "1"]), ("[1, 2]", "pair", (1, 2.0)),
    ("[1, 2, 3]", "many", (1, 2, 3)), ("{a: 1}", "weights", {"a": 1.0}), ("{1: a}", "by_number", {1: "a"}),
    ("5", "either", 5), ("'5'", "either", "5"), ("x", "either", "x"), ("null", "maybe", None), ("5", "maybe", 5.0), ("", "maybe",
     None),
    ("{size: 3}", "window", Window(3)), ("a/b", "path", Path("a/b")), ("{a: [1, x, null]}", "anything", {"a": [1, "x", None]}),
    ("[a, b, a]", "unique", {"a", "b"}), ("[{a: [1]}]", "nested", [{"a": [1]}]), ("007", "anything", "007"), ("no", "anything",
     "no"),
])
def test_types(text, name, value):
    made = getattr(step(f"typed: {{{name}: {text}}}"), name)
    assert made == value
    assert type(made) is type(value)


@pytest.mark.parametrize(("text", "said"), [
    ("text: null", "text: expected a text, got nothing"), ("text: [a]", "text: expected a text, got a list"),
    ("whole: 8.0", "expected a whole number, got 8.0"), ("whole: 1e3", "expected a whole number"), ("whole: 010",
     "got the text '010'"),
    ("number: '1'", "expected a number, got the text '1'; write it without quotes"),
    ("number: 9007199254740993", "expected a number, got 9007199254740993"),
    ("switch: 1", "expected true or false, got 1"), ("switch: 'yes'", "expected true or false"),
    ("mode: fats", "expected one of fast, exact, 3, got the text 'fats'; did you mean fast?"), ("mode: '3'", "expected one of"),
    ("names: [a, null]", "typed.names[1]: expected a text, got nothing"), ("pair: [1]", "expected 2 values, got 1"),
    ("pair: [1, x]", "pair[1]: expected a number, got the text 'x'"), ("weights: {a: x}", "weights.a: expected a number"),
    ("weights: [1]", "expected a mapping from names to numbers, got a list"), ("by_number: {a: b}",
     "by_number.a: expected a whole number"),
    ("either: 1.5", None), ("either: [a]", "expected a whole number or a text, got a list"),
    ("window: {size: x}", "window.size: expected a whole number"), ("window: {}",
     "typed.window: the parameter 'size' is missing"),
    ("window: {size: 1, stepp: 2}", "unknown parameter 'stepp'; did you mean 'step'?"),
    ("nested: [{a: [x]}]", "typed.nested[0].a[0]: expected a whole number"), ("names: {a: b}",
     "expected a list of texts, got a mapping"),
])
def test_types_refuse_what_would_lose_something(text, said):
    if said is None:
        assert step(f"typed: {{{text}}}").either == "1.5"
    else:
        assert said in wrong(f"typed: {{{text}}}")


def test_problems_inside_one_value_are_all_told():
    told = problems("read: {jsonl: {path: x}}\nsteps: [typed: {names: [null, [a]], weights: {a: x, b: y}, whole: z}]\n"
                    "write: {parquet: {path: o}}\n")
    assert [line.split(": ")[1].rpartition("typed.")[2] for line in told] == [
        "names[0]", "names[1]", "weights.a", "weights.b", "whole"]


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=12)
NUMBERS = st.floats(allow_nan=False)
WHOLES = st.integers(-2**70, 2**70)


@given(text=TEXTS, whole=WHOLES, number=NUMBERS, switch=st.booleans(), names=st.lists(TEXTS, max_size=3),
       weights=st.dictionaries(TEXTS.filter(bool), NUMBERS, max_size=3), either=st.one_of(TEXTS, WHOLES),
       maybe=st.none() | NUMBERS, many=st.lists(WHOLES).map(tuple),
       anything=st.recursive(st.none() | st.booleans() | WHOLES | TEXTS | NUMBERS, lambda c: st.lists(c, max_size=3) |
                             st.dictionaries(TEXTS, c, max_size=3), max_leaves=5))
def test_every_value_comes_back_from_yaml_as_it_was(**values):
    made = Typed(**values)
    pipeline = from_source(Jsonl(path="x")) >> made >> ToParquet(path="o")
    loaded = load(dump(pipeline))
    assert loaded.sinks[0].inputs[0].node.stage == made
    assert graph(loaded) == graph(pipeline)
