"""Pipelines written as recipes: the same graph comes back, and no secret stands in it."""

import pytest

from curator.api.resources import Resources
from curator.api.stage import stage
from curator.front import Pipeline, from_source, load
from curator.io.lake.iceberg import Iceberg
from curator.io.lake.lance import ToLance
from curator.pipeline.graph import End, Node
from curator.recipe import dump
from tests.recipe.recipe_stages import (
    DESIGN,
    Archive,
    Drop,
    Exact,
    Jsonl,
    Limit,
    Report,
    Route,
    Signals,
    ToJsonl,
    ToParquet,
    graph,
    problems,
    shout,
)


def route(pipeline: Pipeline, *labels: str) -> dict[str, Pipeline]:
    node = Node(Route(conditions=dict.fromkeys(labels, "x > 1")), pipeline.ends)
    return {label: Pipeline(ends=(End(node, label),)) for label in labels}


def python_pipelines():
    source = from_source(Jsonl(path="a"))
    other = from_source(Archive(path=["b", "c"], limit=3)) >> Signals()
    dropped = source >> Drop(conditions={"a": "no", "b": "1e-3"})
    b = route(source, "high", "mid", "low")
    c = route(b["low"], "high", "low")
    yield source >> ToParquet(path="o")
    yield source.to(ToParquet(path="o")).to(ToJsonl(path="p")) >> Signals(column="x") >> Report(path="q")
    yield (source + other) >> Exact() >> ToParquet(path="o")
    yield (other + source) >> Limit(rows=5).with_(name="few", batch_size=3, resources=Resources(cpus=2.0)) >> Report(path="o")
    yield (dropped.port("dropped") >> shout(column="t") >> ToJsonl(path="j")) + (dropped >> ToParquet(path="o"))
    yield ((dropped.port("dropped") >> shout(column="t")) + dropped) >> Exact() >> ToParquet(path="o")
    yield (b["high"] >> ToParquet(path="h")) + ((b["mid"] + b["low"]) >> Signals() >> ToParquet(path="l"))
    yield (b["high"] + b["mid"] >> ToParquet(path="h")) + (c["low"] >> ToJsonl(path="l")) + (c["high"] >> Report(path="x"))
    yield ((b["high"] >> Signals()) + (b["mid"] >> Drop()) + b["low"]) >> Drop(rules=["x"]) >> ToParquet(path="h")
    yield (source >> Signals() >> ToParquet(path="o")) + (source >> Drop() >> ToJsonl(path="p"))
    yield (source >> Signals() >> Signals() >> ToParquet(path="o")).named("n", max_failed=3, discard=("dropped",), out="z")
    yield (source >> Drop() >> Drop() >> ToParquet(path="o")).named("n", max_failed=float("inf"), discard=("dropped/drop",))
    yield (b["low"] >> ToParquet(path="l")) + (b["high"] >> Signals() >> ToParquet(path="h")) + (b["mid"] >> Report(path="m"))
    yield (c["high"] >> ToParquet(path="1")) + (c["low"] >> ToParquet(path="2")) + (b["high"] + b["mid"] >> ToParquet(path="3"))


@pytest.mark.parametrize("index", range(14))
def test_a_pipeline_from_python_is_written_and_loads_as_the_same_graph(index):
    pipeline = list(python_pipelines())[index]
    text = dump(pipeline)
    loaded = load(text)
    assert graph(loaded) == graph(renamed(pipeline)), text
    assert loaded.name == pipeline.name
    assert loaded.settings.max_failed == pipeline.settings.max_failed
    assert loaded.settings.discard == pipeline.settings.discard
    assert loaded.settings.out == pipeline.settings.out
    assert dump(loaded) == text


def renamed(pipeline: Pipeline) -> Pipeline:
    """With unique names, as the plan gives them."""
    taken, made = [], {}
    for node in pipeline.nodes():
        name, count = node.stage.name, 1
        while name in taken:
            count += 1
            name = f"{node.stage.name}-{count}"
        taken.append(name)
        made[node] = Node(node.stage.with_(name=name), tuple(End(made[e.node], e.port) for e in node.inputs))
    return Pipeline(sinks=tuple(made[s] for s in pipeline.sinks), name=pipeline.name, settings=pipeline.settings)


def test_a_recipe_is_written_as_people_write_it():
    assert dump(load(DESIGN)) == """\
name: web-text
description: Good pages.
read:
  text.warc: {path: crawl/*.warc.gz}
steps:
- text.language:
    keep: [en, 'no']
- text.signals
- drop: {rules: gopher}
- drop:
    conditions: {too_short: word_count < 50, shouting: upper_ratio > 0.3}
  with: {name: drop-2}
- dedup.exact
- route:
    conditions: {high: quality >= 0.8, low: quality < 0.8}
branches:
  high:
    from: route.high
    write:
      parquet: {path: out/}
      with: {name: to_parquet}
  low:
    from: route.low
    steps:
    - text.shout: {column: text}
    write:
      parquet: {path: out-low/}
discard: [duplicate, dropped/drop-2]
"""


def test_secrets_are_not_written():
    client = {"endpoint_url": "http://u:pw@h", "aws_session_token": "t"}
    options = {"key": "AK", "secret": "s3cr3t", "client_kwargs": client, "anon": False}
    source = from_source(Jsonl(path="https://u:pw@h/x?sig=abc&n=1", storage_options=options))
    pipeline = (source >> ToParquet(path="o")).named("p", storage_options={"password": "hunter2"})
    text = dump(pipeline)
    assert not any(secret in text for secret in ("AK", "s3cr3t", "pw@", "hunter2", "abc", "token: t"))
    assert text.count("***") == 7
    lance = ToLance(path="o", dataset="x.lance", lance_options={"azure_storage_sas_key": "abc"})
    catalog = {"adls.connection-string": "abc", "header.Authorization": "abc", "uri": "postgresql://u:abc@h/db"}
    assert "abc" not in dump(from_source(Iceberg(path="a.b", storage_options=catalog)) >> lance)
    loaded = load(text)
    assert loaded.sinks[0].stage.fingerprint() == pipeline.sinks[0].stage.fingerprint()


def test_stages_that_no_pack_has_are_written_with_a_comment():
    @stage
    def mine(batch, n: int = 1):
        return batch

    text = dump(from_source(Jsonl(path="x")) >> mine(n=3) >> ToParquet(path="o"))
    assert text.startswith("# This recipe does not load: these stages are in no installed pack")
    assert "mine: {n: 3}" in text
    assert "unknown stage" in problems(text)[0]
