"""Dropping by conditions and rule sets, and splitting into branches."""

import cloudpickle
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator.api.errors import RecipeError
from curator.api.tasks import ImageBatch, TextBatch
from curator.registry import packs
from curator.stages import Drop, Route
from curator.stages.rules import Rule, load_rules
from curator.testing import run_stage

RULES = """
name: short_texts
description: What is too short.
source: Doe 2024
rules:
  - {reason: empty, when: length(text) = 0, source: table 1}
  - {reason: too_short, when: words < 3}
"""


@pytest.fixture
def rule_file(tmp_path):
    path = tmp_path / "short.yaml"
    path.write_text(RULES)
    return str(path)


@pytest.fixture
def packaged(rule_file, monkeypatch):
    """A pack that has the rule set `short_texts`."""
    def resource(kind, name):
        if (kind, name) != ("rules", "short_texts"):
            raise RecipeError(packs.unknown("rule set", name, ["text/short_texts"]))
        return rule_file
    monkeypatch.setattr(packs, "resource", resource)


def batch(**columns):
    rows = len(next(iter(columns.values())))
    ids, sources = pa.array([f"r{i}" for i in range(rows)], pa.string()), pa.array(["s"] * rows, pa.string())
    return TextBatch(pa.table({"id": ids, "source": sources, **columns}))


TEXTS = batch(text=["", "one two", None, "a b c d", "one two three"], words=[0, 2, None, 4, 3])


def by_id(answer, column="reason"):
    return dict(zip(answer.column("id"), answer.column(column), strict=True))


def test_the_first_condition_that_is_true_gives_the_reason_and_null_stays():
    answers = run_stage(Drop(conditions={"few": "words < 3", "empty": "text = ''", "long": "words > 3"}), TEXTS)
    assert by_id(answers["dropped"]) == {"r0": "few", "r1": "few", "r3": "long"}
    assert answers["out"].column("id") == ["r2", "r4"]
    assert "reason" not in answers["out"].columns


def test_a_packaged_rule_set_is_named_and_comes_before_the_conditions(packaged):
    stage = Drop(rules="short_texts", conditions={"long": "words > 3", "few": "words < 9"})
    assert list(stage.reasons()) == ["empty", "too_short", "long", "few"]
    assert by_id(run_stage(stage, TEXTS)["dropped"]) == {"r0": "empty", "r1": "too_short", "r3": "long", "r4": "few"}


def test_rule_sets_may_be_files_and_several(rule_file, packaged):
    assert Drop(rules=rule_file).reasons() == Drop(rules=["short_texts", rule_file]).reasons()


def test_a_reason_of_two_rule_sets_stands_for_both_rules(packaged, tmp_path):
    (tmp_path / "more.yaml").write_text("rules: [{reason: too_short, when: text = 'a b c d' -- why}]")
    stage = Drop(rules=["short_texts", str(tmp_path / "more.yaml")])
    assert by_id(run_stage(stage, TEXTS)["dropped"]) == {"r0": "empty", "r1": "too_short", "r3": "too_short"}


def test_a_condition_stands_in_the_place_of_the_rule_of_its_reason(packaged):
    stage = Drop(rules="short_texts", conditions={"too_short": "words > 3", "empty": "false"})
    assert list(stage.reasons()) == ["empty", "too_short"]
    assert by_id(run_stage(stage, TEXTS)["dropped"]) == {"r3": "too_short"}


def test_the_contract_is_the_columns_in_the_conditions(packaged):
    assert set(Drop(rules="short_texts", conditions={"x": "y.z > 1"}).contract().needs) == {"text", "words", "y"}


def test_a_changed_rule_set_or_order_is_another_fingerprint(rule_file, packaged, tmp_path):
    before = Drop(rules="short_texts").fingerprint()
    assert Drop(rules=rule_file).fingerprint() == before
    (tmp_path / "short.yaml").write_text(RULES.replace("< 3", "< 4"))
    assert Drop(rules="short_texts").fingerprint() != before
    a, b = {"x": "words > 1", "y": "words > 2"}, {"y": "words > 2", "x": "words > 1"}
    assert Drop(conditions=a).fingerprint() != Drop(conditions=b).fingerprint()


def test_the_rules_travel_with_the_stage(rule_file, tmp_path):
    stage = Drop(rules=rule_file)
    pickled = cloudpickle.dumps(stage)
    (tmp_path / "short.yaml").unlink()
    assert by_id(run_stage(cloudpickle.loads(pickled), TEXTS)["dropped"]) == {"r0": "empty", "r1": "too_short"}


def test_an_unknown_rule_set_names_the_nearest(packaged):
    with pytest.raises(RecipeError, match=r"unknown rule set 'short_text'; did you mean text/short_texts\?"):
        Drop(rules="short_text")
    with pytest.raises(RecipeError, match=r"rule set 'nowhere/x\.yaml'.*"):
        Drop(rules="nowhere/x.yaml")


@pytest.mark.parametrize(("build", "problem"), [
    (lambda: Drop(), "drop has no condition"),
    (lambda: Drop(conditions={"few": "words <"}), "few: `words <` is not valid SQL"),
    (lambda: Drop(conditions={"few": 3}), "few: 3 is no SQL expression"),
    (lambda: Route(routes={}), "route has no port"),
    (lambda: Route(routes={"dropped": "true"}), "route: 'dropped' cannot be the name of a port"),
    (lambda: Route(routes={"a/b": "true"}), "'a/b' cannot be the name of a port"),
    (lambda: Route(routes={"a": "length(x) and"}), "a: `length.x. and` is not valid SQL"),
])
def test_nonsense_is_refused_when_the_stage_is_made(build, problem):
    with pytest.raises(RecipeError, match=problem):
        build()


def test_types_are_checked_when_they_are_known():
    with pytest.raises(RecipeError, match="few: `words` is BIGINT, not a condition"):
        Drop(conditions={"few": "words"}).check({"words": pa.int64()})
    with pytest.raises(RecipeError, match=r"a: `upper.words. = 'x'` cannot be evaluated"):
        Route(routes={"a": "upper(words) = 'x'"}).check({"words": pa.list_(pa.int8())})
    Drop(conditions={"few": "words"}).check({"words": None})


def test_routes_take_each_row_by_the_first_that_is_true():
    stage = Route(routes={"long": "words > 2", "short": "words > 1", "out": "text = ''"})
    assert stage.ports == ("long", "short", "out")
    answers = run_stage(stage, TEXTS)
    assert {port: answer.column("id") for port, answer in answers.items()} == {
        "long": ["r3", "r4"], "short": ["r1"], "out": ["r0"], "dropped": ["r2"]}
    assert by_id(answers["dropped"]) == {"r2": "unmatched"}


def test_the_order_of_routes_is_part_of_the_fingerprint():
    assert Route(routes={"a": "x", "b": "y"}).fingerprint() != Route(routes={"b": "y", "a": "x"}).fingerprint()


def test_payloads_go_with_their_rows():
    images = ImageBatch(TEXTS.rows, encoded=[b"0", b"1", b"2", b"3", b"4"])
    answers = run_stage(Route(routes={"few": "words < 3", "rest": "true"}), images)
    assert (answers["few"].encoded, answers["rest"].encoded) == ([b"0", b"1"], [b"2", b"3", b"4"])


def test_a_record_that_cannot_be_evaluated_raises_and_names_the_condition():
    with pytest.raises(ValueError, match=r"^big: `text::int > 3`: Could not convert string 'one two'"):
        run_stage(Drop(conditions={"big": "text::int > 3"}), batch(text=["5", "one two"]))


@given(st.lists(st.none() | st.integers(-3, 3), max_size=12))
def test_every_row_is_somewhere(numbers):
    given = batch(n=pa.array(numbers, pa.int64()))
    dropped = run_stage(Drop(conditions={"neg": "n < 0", "zero": "n = 0"}), given)
    assert sorted(i for answer in dropped.values() for i in answer.column("id")) == sorted(given.column("id"))
    routed = run_stage(Route(routes={"neg": "n < 0", "pos": "n > 0"}), given)
    assert sorted(i for answer in routed.values() for i in answer.column("id")) == sorted(given.column("id"))


# -- rule sets ----------------------------------------------------------------------------------------------------


def test_a_rule_set_has_a_name_a_source_and_rules_in_order(rule_file):
    rules = load_rules(rule_file)
    assert (rules.name, rules.description, rules.source) == ("short_texts", "What is too short.", "Doe 2024")
    assert rules.rules == (Rule("empty", "length(text) = 0", "table 1"), Rule("too_short", "words < 3"))


def test_a_rule_set_is_read_by_the_yaml_of_recipes(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text("rules:\n  - {reason: no, when: words < 1_000}\n  - {reason: on, when: words > 1e3, source: 2024-01-01}\n")
    assert Drop(rules=str(path)).reasons() == {"no": "words < 1_000", "on": "words > 1e3"}
    path.write_text("rules:\n  - {reason: a, when: b < 1}\nrules: []\n")
    with pytest.raises(RecipeError, match=r"rule set .*r\.yaml:3: .*rules"):
        Drop(rules=str(path))


@pytest.mark.parametrize(("change", "problem"), [
    (("rules:", "rulez:"), "short.yaml:5: rulez: unknown parameter 'rulez'; did you mean 'rules'?"),
    ((RULES, "name: x"), "the parameter 'rules' is missing"),
    ((RULES, "rules: []"), "there is no rule"),
    ((RULES, "- a"), "expected a mapping with rules, name, description, source, got a list"),
    ((RULES, ""), "got nothing"),
    (("name: short_texts", "name: [a"), r"short\.yaml:\d+: this is not YAML"),
    (("reason: too_short", "reson: too_short"), r"yaml:7: rules\[1\].reson: unknown parameter 'reson'; did you mean 'reason'\?"),
    (("when: words < 3", "source: x"), r"rules\[1\]: the parameter 'when' is missing"),
    (("when: words < 3", "when: [a]"), r"rules\[1\].when: expected a text, got a list"),
    (("reason: too_short", "reason: Too short"), r"rules\[1\]: the reason 'Too short' is not in snake_case"),
    (("reason: too_short", "reason: empty"), r"rules\[1\]: the reason 'empty' is taken"),
    (("when: words < 3", "when: words <"), r"yaml:7: rules\[1\]: too_short: `words <` is not valid SQL"),
    (("source: Doe 2024", "source: {a: b}"), "source: expected a text, got a mapping"),
    (("  - {reason: empty", "  - 5\n  - {reason: empty"), r"rules\[0\]: expected a mapping with reason, when, source, got 5"),
])
def test_what_is_wrong_in_a_rule_set_is_told_with_file_line_rule_and_field(rule_file, change, problem):
    with open(rule_file, "w") as file:
        file.write(RULES.replace(*change))
    with pytest.raises(RecipeError, match=rf"rule set .*{problem}"):
        load_rules(rule_file)


@pytest.mark.parametrize("text", ["", "# to come\n", "\n  # to come"])
def test_a_rule_set_without_rules_is_told_what_belongs_there(rule_file, text):
    with open(rule_file, "w") as file:
        file.write(text)
    with pytest.raises(RecipeError, match=r"rule set .*short.yaml: expected a mapping with rules, name, .* got nothing"):
        load_rules(rule_file)


def test_all_that_is_wrong_in_a_rule_set_is_told_at_once(rule_file):
    with open(rule_file, "w") as file:
        file.write(RULES.replace("length(text) = 0", "length(text) =").replace("reason: too_short", "reason: Too short"))
    with pytest.raises(RecipeError, match=r"(?s)yaml:6: rules\[0\].*not valid SQL.*yaml:7: rules\[1\].*not in snake_case"):
        load_rules(rule_file)


def test_texts_of_a_rule_set_are_as_they_are_written(rule_file):
    with open(rule_file, "w") as file:
        file.write(RULES.replace("when: words < 3", "when: true").replace("source: Doe 2024", "source: 2024")
                   .replace("What is too short.", ">\n  What is\n  too short.")
                   + "  - reason: long\n    when: words > 9\n    source: >\n      table 1 of\n      the paper\n")
    rules = load_rules(rule_file)
    assert (rules.rules[1].when, rules.source) == ("true", "2024")
    # folded lines end in a break, which is none of it
    assert (rules.rules[2].source, rules.description) == ("table 1 of the paper", "What is too short.")
