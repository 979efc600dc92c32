"""The graph of a pipeline: what is joined to what, and what cannot be."""

from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator.api.errors import InputError, RecipeError
from curator.api.resources import Resources
from curator.api.stage import Contract, Sink, Source, Stage
from curator.front import Pipeline, from_source
from curator.pipeline.graph import End
from curator.pipeline.plan import make_plan


@dataclass
class Lines(Source):
    path: str = "in"


@dataclass
class Clean(Stage):
    pass


@dataclass
class Grade(Stage):
    ports = ("good", "bad")


@dataclass
class Files(Sink):
    path: str = "out"


def names(pipeline):
    return [node.stage.name for node in pipeline.nodes()]


def test_stages_join_port_to_stage():
    pipeline = from_source(Lines()) >> Clean() >> Files()
    assert names(pipeline) == ["lines", "clean", "files"]
    clean = pipeline.sinks[0].inputs[0].node
    assert pipeline.sinks[0].inputs == (End(clean, "out"),)
    assert clean.inputs[0].node.stage.path == "in"
    assert pipeline.ends == ()


def test_every_operation_gives_a_new_pipeline():
    start = from_source(Lines())
    start >> Clean() >> Files()
    assert names(start) == ["lines"]
    assert start.sinks == ()


def test_a_stage_with_ports_of_its_own_branches():
    branches = (from_source(Lines()) >> Grade()).branches()
    assert list(branches) == ["good", "bad"]
    whole = (branches["good"] >> Files(path="a")) + (branches["bad"] >> Clean() >> Files(path="b"))
    assert names(whole) == ["lines", "grade", "files", "clean", "files"]
    assert [sink.stage.path for sink in whole.sinks] == ["a", "b"]
    assert len({node for node in whole.nodes() if node.stage.name == "grade"}) == 1


def test_a_file_that_a_stage_misses_is_told_with_the_stage():
    @dataclass
    class Listed(Stage):
        def check(self, columns):
            raise InputError("words.txt does not exist")

    @dataclass
    class Texts(Lines):
        def contract(self):
            return Contract(adds={"text": pa.string()})

    with pytest.raises(InputError, match=r"stage 'listed': words\.txt does not exist"):
        make_plan(from_source(Texts()) >> Listed() >> Files())


def test_the_endings_are_ports_too():
    stage = from_source(Lines()) >> Clean()
    assert stage.port("dropped").ends[0].port == "dropped"
    with pytest.raises(RecipeError, match="stage 'clean' has no port 'rest'; it has out, dropped, duplicate, failed"):
        stage.port("rest")


def test_a_route_gives_a_branch_for_each_label():
    branches = from_source(Lines()).route({"long": "length(text) > 9", "short": "true"})
    assert list(branches) == ["long", "short"]


def test_branches_merge_in_the_next_stage():
    graded = from_source(Lines()) >> Grade()
    merged = (graded.port("good") + (graded.port("bad") >> Clean())) >> Clean() >> Files()
    last = merged.sinks[0].inputs[0].node
    assert [(end.node.stage.name, end.port) for end in last.inputs] == [("grade", "good"), ("clean", "out")]


def test_sources_unite_and_one_that_is_united_twice_counts_once():
    a, b = from_source(Lines(path="a")), from_source(Lines(path="b"))
    assert [end.node.stage.path for end in (a + b + a).ends] == ["a", "b"]


def test_writing_on_the_way_keeps_the_way_open():
    pipeline = from_source(Lines()).to(Files(path="raw")) >> Clean() >> Files(path="clean")
    assert [sink.stage.path for sink in pipeline.sinks] == ["raw", "clean"]


def test_what_is_written_on_the_way_is_written_also_when_a_port_is_followed():
    pipeline = (from_source(Lines()).to(Files(path="raw")) >> Clean()).port("dropped") >> Files(path="dropped")
    assert [sink.stage.path for sink in pipeline.sinks] == ["raw", "dropped"]


def test_a_pipeline_has_a_name_and_settings():
    pipeline = from_source(Lines()).named("mine", max_failed=3, discard=("dropped",))
    assert (pipeline.name, pipeline.settings.max_failed, pipeline.settings.discard) == ("mine", 3, ("dropped",))
    assert Pipeline().settings.max_failed != 3


@pytest.mark.parametrize(("build", "problem"), [
    (lambda: from_source(Lines()) >> len, "built-in function len> is not a stage; a plain function becomes one with"),
    (lambda: from_source(Lines()) >> Lines(), "source 'lines' cannot follow a stage; unite sources with"),
    (lambda: Pipeline() >> Clean(), "stage 'clean' has nothing to read from"),
    (lambda: from_source(Lines()) >> Files() >> Clean(), "stage 'clean' has nothing to read from"),
    (lambda: from_source(Clean()), "is not a source"),
    (lambda: (from_source(Lines()) + from_source(Lines())).branches(), "2 open ends"),
    (lambda: (from_source(Lines()) >> Files()).port("out"), "no open end"),
])
def test_what_cannot_be_joined_says_why(build, problem):
    with pytest.raises(RecipeError, match=problem):
        build()


@given(st.lists(st.tuples(st.sampled_from(["stage", "branch", "unite", "write"]), st.integers(0, 9), st.integers(0, 9)),
                max_size=12))
def test_nodes_come_after_their_inputs_and_once(moves):
    made = [from_source(Lines(path="0"))]
    for move, a, b in moves:
        one, other = made[a % len(made)], made[b % len(made)]
        if move == "unite":
            made.append(one + other)
        elif move == "write":
            made.append(one.to(Files(path=str(len(made)))) if one.ends else one)
        elif one.ends:
            made.append(one >> Clean() if move == "stage" else (one >> Clean()).port("dropped"))
    nodes = sum(made[1:], made[0]).nodes()
    place = {node: at for at, node in enumerate(nodes)}
    assert len(place) == len(nodes)
    assert all(place[end.node] < place[node] for node in nodes for end in node.inputs)


def test_only_stages_that_answer_batch_by_batch_can_be_gangs(tmp_path):
    gang = Resources(cpus=2, gang=True)
    make_plan(from_source(Lines()) >> Clean().with_(resources=gang) >> Files(path=str(tmp_path)))
    with pytest.raises(RecipeError, match="'files' cannot be a gang"):
        make_plan(from_source(Lines()) >> Files(path=str(tmp_path)).with_(resources=gang))
