"""Stages: names, contracts, fingerprints that hold across processes, functions as stages, units."""

import enum
import functools
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator.api.errors import StageError
from curator.api.resources import Resources
from curator.api.stage import Contract, Outputs, SourceRange, Stage, Unit, setting, snake_case, stage
from curator.api.tasks import TextBatch


class Mode(enum.Enum):
    FAST = "fast"
    EXACT = "exact"


@dataclass
class Window:
    size: int = 3


@dataclass(kw_only=True)
class Bounded(Stage):
    least: int
    most: int | None = 9

    def __post_init__(self) -> None:
        self.at_least(1, "least", "most")


@dataclass(kw_only=True)
class Score(Stage):
    """A stage with a parameter of each kind."""

    column: str = "text"
    names: set[str] = field(default_factory=set)
    weights: Mapping[str, float] = field(default_factory=dict)
    window: Window = field(default_factory=Window)
    mode: Mode = Mode.FAST
    kind: pa.DataType = pa.string()
    table: np.ndarray | None = None
    path: Path | None = None
    function: object = None
    threads: int = setting(default=1)

    def contract(self):
        return Contract(needs={self.column}, adds={"score": pa.float32()}, removes={"old"})


def batch(**columns):
    return TextBatch(pa.table({"id": ["a", "b"], "source": ["s", "s"], **columns}))


# -- fingerprints -------------------------------------------------------------------------------------------------

PARAMETERS = {"column": "body", "names": {"x", "y", "z", "w"}, "weights": {"b": 1.0, "a": 2.0}, "window": Window(size=5),
              "mode": Mode.EXACT, "kind": pa.int64(), "table": np.arange(3), "path": Path("a/b")}


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_every_parameter_is_part_of_the_fingerprint(name):
    assert Score(**{name: PARAMETERS[name]}).fingerprint() != Score().fingerprint()


def test_a_setting_is_not():
    assert Score(threads=8).fingerprint() == Score().fingerprint()
    assert Score().with_(name="other", batch_size=5, resources=Resources(cpus=2)).fingerprint() == Score().fingerprint()


def test_equal_parameters_give_equal_fingerprints_whatever_their_order():
    a = Score(names={"x", "y"}, weights={"a": 1.0, "b": 2.0})
    b = Score(names={"y", "x"}, weights={"b": 2.0, "a": 1.0})
    assert a.fingerprint() == b.fingerprint()


@given(st.dictionaries(st.text(max_size=4), st.floats(allow_nan=False), max_size=4), st.sets(st.text(max_size=4)))
def test_a_stage_that_has_travelled_has_the_same_fingerprint(weights, names):
    made = Score(weights=weights, names=names)
    assert cloudpickle.loads(cloudpickle.dumps(made)).fingerprint() == made.fingerprint()
    assert len(made.fingerprint()) == 16


def test_version_and_class_are_part_of_the_fingerprint():
    @dataclass(kw_only=True)
    class Other(Score):
        pass

    @dataclass(kw_only=True)
    class Newer(Score):
        version = 2

    Newer.__name__ = "Score"
    assert len({Score().fingerprint(), Other().fingerprint(), Newer().fingerprint()}) == 3


def test_a_parameter_without_a_stable_description_is_refused():
    with pytest.raises(TypeError, match="'score', parameter 'function': a stage parameter of type generator has no stable"):
        Score(function=(n for n in "ab")).fingerprint()


SCRIPT = """
import functools, sys
sys.path.insert(0, {folder!r})
import pyarrow as pa
from curator.api.stage import stage
from fingerprint_sample import Score, keep, made

print(Score(names={{"x", "y", "z"}}, nested={{"a": {{"q", "r", "s"}}}}).fingerprint())
print(keep.fingerprint(), keep(limit=3).fingerprint(), made(2).fingerprint())
"""

SAMPLE = """
from dataclasses import dataclass, field
from curator.api.stage import Stage, stage

@dataclass(kw_only=True)
class Score(Stage):
    names: set = field(default_factory=set)
    nested: dict = field(default_factory=dict)

@stage
def keep(batch, limit=5, *, words=frozenset({"a", "b", "c", "d"})):
    good = {w for w in words if w in {"a", "b", "c"}}
    return batch.filter([t in ("x", frozenset({"p", "q", "r"})) for t in batch.column("text")])

def made(n):
    @stage
    def times(batch, by=lambda x: x * n):
        return batch
    return times
"""


def test_fingerprints_are_the_same_in_every_process(tmp_path):
    (tmp_path / "fingerprint_sample.py").write_text(SAMPLE)
    script = SCRIPT.format(folder=str(tmp_path))
    answers = {subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONHASHSEED": seed},
                              capture_output=True, text=True, check=True).stdout for seed in ("1", "2")}
    assert len(answers) == 1
    assert len(set(answers.pop().split())) == 4


def compiled(source):
    """A stage from a function's source text."""
    names = {}
    exec(source, names)
    return stage(names["f"])


@pytest.mark.parametrize("changed", [
    "def f(batch, n=2):\n    return batch.take([0])",
    "def f(batch, n=3):\n    return batch.take([1])",
    "def f(batch, n=2):\n    return batch.filter([1])",
    "def f(batch, *, n=2):\n    return batch.take([1])",
    "def f(batch, n=2):\n    return [x for x in [batch.take([1])] if 7]",
    "def f(batch, n=2):\n    return batch.take({1})",
])
def test_a_changed_function_has_another_fingerprint(changed):
    assert compiled(changed).fingerprint() != compiled("def f(batch, n=2):\n    return batch.take([1])").fingerprint()


def test_a_changed_default_of_a_keyword_only_argument_is_another_fingerprint():
    a, b = (compiled(f"def f(batch, *, n={n}):\n    return batch") for n in (1, 2))
    assert a.fingerprint() != b.fingerprint()


def test_a_comment_or_a_moved_line_is_not():
    a, b = (compiled(text) for text in ("def f(batch):\n    return batch", "\n\n# more\ndef f(batch):\n\n    return batch"))
    assert a.fingerprint() == b.fingerprint()


def test_what_a_function_closes_over_counts_and_may_be_itself():
    def counting(n):
        def down(batch, depth=0):
            return batch if depth > n else down(batch, depth + 1)
        return stage(down)

    assert counting(1).fingerprint() == counting(1).fingerprint() != counting(2).fingerprint()


def test_a_partly_bound_function_counts_with_what_is_bound():
    def scale(x, by):
        return x * by

    twice, thrice = (Score(function=functools.partial(scale, by=n)) for n in (2, 3))
    assert twice.fingerprint() != thrice.fingerprint()


# -- stages -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "snake"), [("ExtractHtml", "extract_html"), ("HTMLText", "html_text"), ("Drop", "drop"),
                                             ("NSFWScore2", "nsfw_score2"), ("toJSONLines", "to_json_lines")])
def test_a_class_gives_the_name_in_snake_case(name, snake):
    assert snake_case(name) == snake
    assert type(name, (Stage,), {}).name == snake


def test_a_name_of_its_own_is_kept_and_not_inherited_by_accident():
    class Named(Stage):
        name = "dedup.exact"

    class Child(Named):
        pass

    assert (Named.name, Child.name) == ("dedup.exact", "child")


@pytest.mark.parametrize("least", [0, -1.0, float("nan"), None])
def test_a_parameter_has_a_least_value_and_is_none_only_where_it_may_be(least):
    assert Bounded(least=1, most=None).most is None
    for wrong in ({"least": least}, {"least": 1, "most": 0}):
        with pytest.raises(ValueError, match=r"(least|most) must be 1 or more, got "):
            Bounded(**wrong)


def test_with_gives_an_adjusted_copy_and_leaves_the_stage_alone():
    made = Score()
    other = made.with_(batch_size=7, name="mine", timeout_s=2.5)
    assert (other.batch_size, other.name, other.timeout_s, other.column) == (7, "mine", 2.5, "text")
    assert (made.batch_size, made.name, made.timeout_s) == (None, "score", None)
    assert made.with_(resources={"cpus": 2}).resources == made.with_(resources=Resources(cpus=2)).resources == Resources(cpus=2)


def test_columns_after_a_stage_follow_its_contract():
    before = {"text": pa.string(), "old": pa.int8(), "score": pa.int64()}
    assert Score().columns_after(before) == {"text": pa.string(), "score": pa.float32()}


def test_a_stage_without_process_says_so():
    with pytest.raises(TypeError, match="Score has no process method"):
        Score().process(batch())


def test_outputs_are_batches_by_port():
    given = batch()
    outputs = Outputs({"high": given}, dropped=given, absorbed=given)
    assert list(outputs) == ["high", "dropped"]
    assert outputs.absorbed is given


@stage(needs={"text"}, adds={"long": pa.bool_()}, resources=Resources(cpus=2), batch_size=9)
def longer(batch, than: int = 1):
    """Which texts are longer."""
    return batch.with_columns({"long": [len(t) > than for t in batch.column("text")]})


def test_a_function_is_a_stage():
    assert (longer.name, longer.batch_size, longer.resources.cpus) == ("longer", 9, 2)
    assert longer.__doc__ == "Which texts are longer."
    assert longer.contract().adds == {"long": pa.bool_()}
    given = batch(text=["a", "bcd"])
    assert longer.process(given).column("long") == [False, True]
    assert longer(than=3).process(given).column("long") == [False, False]
    assert longer.arguments == {}
    assert longer(than=3).fingerprint() != longer.fingerprint()


def test_a_function_stage_travels_to_a_worker():
    there = cloudpickle.loads(cloudpickle.dumps(longer(than=2)))
    assert there.process(batch(text=["a", "bcd"])).column("long") == [False, True]
    assert there.name == "longer"


def test_a_stage_error_survives_pickling_and_names_records():
    error = pickle.loads(pickle.dumps(StageError("score", "lost rows", ("a", "b", "c", "d", "e", "f"))))
    assert str(error) == "stage 'score': lost rows (records a, b, c, d, e, …)"
    assert (error.stage, error.ids[-1]) == ("score", "f")


# -- units --------------------------------------------------------------------------------------------------------


def test_a_units_key_tells_content_apart():
    whole = SourceRange(uri="a", size_bytes=10, version="1")
    others = [SourceRange(uri="b", size_bytes=10, version="1"), SourceRange(uri="a", size_bytes=11, version="1"),
              SourceRange(uri="a", size_bytes=10, version="2"), SourceRange(uri="a", size_bytes=10, version="1", start=1),
              SourceRange(uri="a", size_bytes=10, version="1", stop=5)]
    keys = {Unit((part,)).key for part in [whole, *others]} | {Unit((whole, others[0])).key}
    assert len(keys) == 7
    assert Unit((whole,)).key == Unit((SourceRange(uri="a", size_bytes=10, version="1"),)).key


def test_a_unit_knows_its_size_and_a_name_for_people():
    parts = (SourceRange(uri="a.jsonl", size_bytes=100, start=20, stop=50), SourceRange(uri="b.jsonl", size_bytes=7))
    assert Unit(parts).size_bytes == 37
    assert Unit(parts).label == "a.jsonl[20:50] and 1 more"
    assert Unit(parts[1:]).label == "b.jsonl"


@pytest.mark.parametrize("wrong", [{"cpus": -1}, {"gpus": "2"}, {"memory_gb": True}, {"gpus": 1.5},
                                   {"cpus": 0, "gang": True}])
def test_resources_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=r"Resources|gang"):
        Resources(**wrong)
