"""What a pipeline says of itself: as a tree, as a graph, its columns, and as a recipe that loads again."""

from __future__ import annotations

from xml.etree import ElementTree

import pyarrow as pa
import pytest

from curator import RecipeError, Resources, load, read, stage, write
from curator.api.errors import ContractError
from curator.stages import Drop, Each, Map, ToJsonl


@pytest.fixture
def branched(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text('{"text": "one", "n": 1}\n')
    parts = (read("a.jsonl") + read(["b.jsonl"], select=["text", "n"])).route({"low": "n < 1", "high": "true"})
    high = parts["high"] >> {"map": {"more": "n + 1"}} >> Drop({"short": "length(text) < 2"}) >> write("high/")
    return ((parts["low"] >> write("low/", format="parquet")) + high).named("two ways", out="out", max_failed=3, license="MIT")


def test_a_pipeline_prints_as_a_tree(branched):
    assert repr(branched).splitlines() == [
        "Pipeline 'two ways': 7 stages",
        "  jsonl  path=a.jsonl",
        "  jsonl-2  path=['b.jsonl'], select=['text', 'n']",
        "  route  routes={'low': 'n < 1', 'high': 'true'}  <- jsonl.out, jsonl-2.out",
        "    └ low: to_parquet  path=low/",
        "    └ high: map  columns={'more': 'n + 1'}",
        "      drop  conditions={'short': 'length(text) < 2'}",
        "      to_jsonl  path=high/"]
    assert repr(read("a.jsonl")) == "Pipeline 'pipeline': 1 stage, without a sink\n  jsonl  path=a.jsonl"


def test_no_secret_is_shown():
    pipeline = read("https://me:hush@host/a.jsonl?token=hush", "jsonl", storage_options={"secret": "hush", "anon": "no"})
    assert "hush" not in repr(pipeline) + pipeline._repr_svg_()
    assert "***" in repr(pipeline)


def test_a_notebook_gets_a_graph_that_is_xml_whatever_names_say(branched):
    odd = branched + (read("<&\"\x07", "jsonl").named("<b>") >> ToJsonl(path="é\ud800").with_(name="<script>"))
    drawn = ElementTree.fromstring(odd._repr_svg_())
    texts = [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"route", "low", "high", "<script>", "path=<&\"\ufffd"} <= set(texts)
    boxes = [one for one in drawn.iter("{http://www.w3.org/2000/svg}rect") if one.get("x")]
    assert len({(box.get("x"), box.get("y")) for box in boxes}) == len(odd.nodes())
    assert all(float(box.get("x")) + float(box.get("width")) < float(drawn.get("width")) for box in boxes)


def test_the_schema_is_what_contracts_tell(branched):
    pipeline = read("a.jsonl") >> Map({"more": "n / 2"}) >> {"select": {"drop": ["text"]}}
    assert {field.name: field.type for field in pipeline.schema()} == {
        "n": pa.int64(), "id": pa.string(), "source": pa.string(), "more": pa.float64()}
    assert (pipeline >> write("out/")).schema() == pipeline.schema()
    made = pipeline.collect(workers=0).schema
    assert {made.field(name) for name in made.names} == set(pipeline.schema())
    with pytest.raises(ContractError, match="txt"):
        (pipeline >> Drop({"short": "length(txt) < 2"})).schema()


def test_a_pipeline_is_a_recipe_that_loads_as_the_same(branched):
    text = branched.to_yaml()
    again = load(text)
    assert again.to_yaml() == text
    assert repr(again) == repr(branched)
    assert again.settings == branched.settings


def only_in_python():
    @stage(needs={"text"})
    def mine(batch, few=3):
        return batch

    return mine


mine = only_in_python()


@pytest.mark.parametrize(("make", "why"), [
    (lambda p: p, "end the pipeline with a sink"),
    (lambda p: p >> mine(few=4) >> write("o/"), "'mine', which is .*test_looks.*mine"),
    (lambda p: p >> Each(payload="list", as_="text", steps=[mine], gather={"text": "first"}) >> write("o/"),
     "'each', which is .*test_looks.*mine"),
    (lambda p: read([{"text": "one"}]) >> write("o/"), "in memory"),
], ids=["open", "function", "inner", "memory"])
def test_what_yaml_cannot_say_is_told(make, why):
    with pytest.raises(RecipeError, match=why):
        make(read("a.jsonl")).to_yaml()


def test_what_was_changed_in_a_stage_is_said_too():
    pipeline = read("a.jsonl") >> Map({"b": "1"}).with_(batch_size=7, resources=Resources(cpus=2), name="ones") >> write("o/")
    assert load(pipeline.to_yaml()).nodes()[1].stage.with_() == pipeline.nodes()[1].stage
