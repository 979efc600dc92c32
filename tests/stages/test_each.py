"""Steps over the items of records: what is gathered, what fails, what is refused, and what a recipe and a run
say of it."""

import json
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curator import (
    Batch,
    Context,
    CuratorError,
    ImageBatch,
    Outputs,
    RecipeError,
    Resources,
    Source,
    Stage,
    TextBatch,
    VideoBatch,
    load,
    stage,
)
from curator.api.counts import Counts
from curator.api.errors import ContractError
from curator.api.findings import Alarm, Line
from curator.api.stage import SourceRange, Unit
from curator.front import Pipeline
from curator.pipeline.formats import write
from curator.pipeline.graph import from_source
from curator.recipe import dump
from curator.stages import Drop, Each, Jsonl, Limit, Map, Route, Sample, Top
from curator.testing import check_stage, run_stage
from curator.testing.run import fresh, marked

BAD = 255  # a level that `Level` cannot work on


@dataclass(kw_only=True)
class Level(Stage):
    """The mean level of pixels and the direction of it; how many there were in the call."""

    times: float = 1.0
    batch_size = 4

    def contract(self):
        from curator import Contract

        return Contract(needs={"pixels"}, adds={"level": pa.float32(), "turned": pa.list_(pa.float32()), "call": pa.int32()})

    def setup_node(self, ctx):
        self.node = True

    def setup(self, ctx):
        assert self.node
        self.open = True

    def close(self):
        assert self.open

    def findings(self, step, counts):
        yield Line(f"{step} saw {counts.rows_in}, {counts.extra['calls']} calls")

    def process(self, batch: ImageBatch):
        assert all(one is None or one.base is not None for one in batch.pixels), "a copy"
        levels = [None if one is None else float(one.mean()) * self.times for one in batch.pixels]
        if any(one is not None and one[0, 0, 0] == BAD for one in batch.pixels):
            raise ValueError("too bright")
        columns = {"level": pa.array(levels, pa.float32()), "call": pa.array([len(batch)] * len(batch), pa.int32()),
                   "turned": pa.array([None if v is None else [np.cos(v), np.sin(v)] for v in levels], pa.list_(pa.float32()))}
        return Outputs(out=batch.with_columns(columns), counts={"calls": 1})


def clips(*levels, **columns):
    """A record for each list of levels, with a frame for each; None for no payload."""
    frames = [None if one is None else np.array(one, np.uint8).reshape(-1, 1, 1, 1) * np.ones((1, 2, 4, 3), np.uint8) for one in levels]
    times = [None if one is None else np.arange(len(one)) / 2 for one in levels]
    ids = [f"r{n}" for n in range(len(levels))]
    return VideoBatch(pa.table({"id": ids, "source": ["s"] * len(ids), **columns}), frames=frames, timestamps=times)


def each(*steps, gather=None, **more):
    return Each(payload="frames", as_="pixels", steps=list(steps or [Level()]), gather=gather or {"level": "max"}, **more)


def values(outputs, name, port="out"):
    return outputs[port].column(name) if port in outputs else []


# -- gathering ----------------------------------------------------------------------------------------------------


def test_what_steps_add_to_items_becomes_columns_of_the_record():
    batch = clips([1, 5, 3], [7], [], None, [2, 4])
    made = run_stage(each(gather={"level": ["max", "min", "mean", "median", "std", "sum", "list", "first", "last", "count"],
                                  "width": {"first": "wide"}, "height": {"first": "high"}, "item": {"list": "items"}}), batch)
    rows = {row["id"]: row for row in made["out"].rows.to_pylist()}
    assert {name.removeprefix("level_"): value for name, value in rows["r0"].items() if name.startswith("level_")} == {
        "max": 5, "min": 1, "mean": 3, "median": 3, "std": pytest.approx((8 / 3) ** 0.5), "sum": 9, "list": [1, 5, 3], "first": 1,
        "last": 3, "count": 3}
    assert (rows["r0"]["wide"], rows["r0"]["high"], rows["r0"]["items"]) == (4, 2, [0, 1, 2])
    assert rows["r4"]["level_mean"] == 3
    for none in ("r2", "r3"):
        assert rows[none].pop("level_count") == 0
        assert {rows[none][name] for name in rows[none] if name.startswith("level_")} == {None}
    assert made["out"].frames[4] is batch.frames[4]


def test_items_share_a_batch_over_records():
    made = run_stage(each(gather={"call": "list"}), clips([1, 2, 3], [4], [5, 6, 7, 8, 9]))["out"]
    assert made.column("call") == [[4, 4, 4], [4], [4, 4, 4, 4, 1]]


def test_mean_of_vectors_of_length_one_has_length_one():
    made = run_stage(each(gather={"turned": ["mean", "max"]}), clips([0, 1], [3]))["out"]
    mean, most = made.column("turned_mean"), made.column("turned_max")
    assert mean[0] == pytest.approx([np.cos(0.5), np.sin(0.5)])
    assert mean[1] == pytest.approx([np.cos(3), np.sin(3)])
    assert most[0] == pytest.approx([1, np.sin(1)])
    plain = Each(payload="vectors", as_="v", steps=[Map(columns={"w": "v"})], gather={"v": "mean"})
    rows = Batch(pa.table({"id": ["a", "b"], "source": ["s"] * 2, "vectors": [[[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0], [3.0]]]}))
    with pytest.raises(ValueError, match="of 2 numbers and of 1"):
        run_stage(plain, rows)
    assert run_stage(plain, rows.slice(0, 1))["out"].column("v") == [[2.0, 3.0]]


def test_what_is_dropped_inside_is_not_gathered_and_truth_has_folds_of_its_own():
    steps = [Level(), Drop(conditions={"dark": "level < 3"}), Map(columns={"bright": "level > 5"})]
    found = run_stage(each(*steps, gather={"bright": ["any", "all", "mean"], "id": {"count": "kept"}}), clips([1, 4, 6], [1, 2], [7]))
    assert [values(found, name) for name in ("bright_any", "bright_all", "bright_mean", "kept")] == [
        [True, None, True], [False, None, True], [0.5, None, 1.0], [1 + 1, 0, 1]]


def test_columns_of_the_record_and_values_of_items_go_inside():
    steps = [Map(columns={"late": "timestamps > since", "note": "caption || item"})]
    made = run_stage(each(*steps, gather={"late": "any", "note": "last", "timestamps": {"max": "end"}},
                          per_record=["since", "caption"], per_item=["timestamps"]),
                     clips([1, 2, 3], [4], since=[0.7, 9.0], caption=["a", None]))["out"]
    assert [made.column(name) for name in ("late", "note", "end")] == [[True, False], ["a2", None], [1.0, 0.0]]


def test_values_of_a_list_column_are_items_too():
    words = Batch(pa.table({"id": ["a", "b", "c"], "source": ["s"] * 3, "words": [["one", "two"], None, ["three"]]}))
    counted = Each(payload="words", as_="word", steps=[Map(columns={"n": "length(word)"})], gather={"n": "sum", "word": {"max": "x"}})
    with pytest.raises(RecipeError, match="max is of numbers or vectors, and 'word' is string"):
        counted.check({"id": pa.string(), "source": pa.string(), "words": pa.list_(pa.string())})
    counted = Each(payload="words", as_="word", steps=[Map(columns={"n": "length(word)"})], gather={"n": "sum", "word": "last"})
    check_stage(counted, words)
    made = run_stage(counted, words)["out"]
    assert (made.column("n"), made.column("word")) == ([6, None, 5], ["two", None, "three"])
    assert counted.columns_after({"words": pa.list_(pa.string())})["n"] == made.rows.schema.field("n").type


def test_what_it_was_given_is_let_go_when_it_has_answered():
    pages = [["x" * 10_000] * 20] * 20
    worker = fresh(Each(payload="pages", as_="text", steps=[Map(columns={"n": "length(text)"})], gather={"text": {"count": "n"}}))
    began = pa.total_allocated_bytes()
    batch = marked(TextBatch(pa.table({"id": [str(n) for n in range(20)], "source": ["s"] * 20, "pages": pages})))
    assert pa.total_allocated_bytes() - began > 4_000_000
    worker.process(batch)
    del batch
    assert pa.total_allocated_bytes() - began < 100_000


def test_a_record_with_more_than_a_call_may_hold_is_cut_and_keeps_the_rules():
    big = np.zeros((40, 1024, 1024, 3), np.uint8)  # 120 MB; it is never touched, so it takes no memory

    @stage(needs={"pixels"}, adds={"mb": pa.float64()})
    def size(batch):
        return batch.with_columns({"mb": [sum(one.nbytes for one in batch.pixels) / 2**20] * len(batch)})

    made = run_stage(each(size, gather={"mb": ["max", "count"]}), VideoBatch(pa.table({"id": ["a"], "source": ["s"]}), frames=[big]))
    assert made["out"].column("mb_count") == [40]
    assert made["out"].column("mb_max")[0] <= 48


def test_it_keeps_the_rules_of_stages():
    seven = Map(columns={"x": "CAST(CASE WHEN level = 7 THEN 'seven' ELSE '1' END AS INT)"})
    check_stage(each(Level(), seven, Drop(conditions={"second": "item = 1"}), gather={"level": ["max", "list"], "turned": "mean"},
                     per_item=["timestamps"]), clips([1, 5, 3], [7, BAD, 3], None, [BAD], [2, 4]))


# -- failures -----------------------------------------------------------------------------------------------------


def test_one_item_that_fails_is_left_out_and_too_many_fail_the_record():
    batch = clips([1, BAD, 3], [BAD, BAD, 3], [BAD], [4])
    made = run_stage(each(gather={"level": ["max", "count"]}), batch)
    assert (values(made, "id"), values(made, "level_max"), values(made, "level_count")) == (["r0", "r3"], [3, 4], [2, 1])
    assert values(made, "error", "failed") == ["2 of 3 items failed, the first in level: ValueError: too bright",
                                               "1 of 1 items failed, the first in level: ValueError: too bright"]
    assert "raise ValueError" in values(made, "traceback", "failed")[0]
    assert values(run_stage(each(max_failed_items=0), batch), "id") == ["r3"]
    assert values(run_stage(each(max_failed_items=1), batch), "id", "failed") == ["r2"]


def test_values_that_do_not_fit_the_items_fail_their_record():
    batch = clips([1, 2], [3])
    batch.timestamps[0] = np.zeros(3)
    batch.frames[1] = np.array(7)
    made = run_stage(each(per_item=["timestamps"]), batch)
    assert values(made, "error", "failed") == ["'frames' has 2 items, and 'timestamps' a value for 3",
                                               "'frames' is ndarray, and not a list or an array of items"]


def test_a_step_that_breaks_its_contract_is_no_fault_of_the_items():
    @stage(needs={"pixels"}, adds={"n": pa.int32()})
    def forgetful(batch):
        return batch

    with pytest.raises(CuratorError, match=r"each > forgetful.*its contract adds 'n'"):
        run_stage(each(forgetful, gather={"n": "max"}), clips([1]))


# -- the plan -----------------------------------------------------------------------------------------------------


COLUMNS = {"id": pa.string(), "source": pa.string(), "frames": None, "caption": pa.string(), "n": pa.int64()}


@pytest.mark.parametrize(("change", "says"), [
    ({"as_": "pixel"}, "stage 'each > level' needs 'pixels', which nothing before it makes; did you mean 'pixel'?"),
    ({"steps": [Map(columns={"x": "caption"})]}, r"'each > map' needs 'caption'.*per_record: \[caption\] gives it to the items"),
    ({"gather": {"lvl": "max"}}, "gather: no column 'lvl' comes out of the steps; there are .*level"),
    ({"payload": "n", "as_": "pixels"}, "'n' is int64, neither a list nor a payload"),
], ids=["as", "per_record", "gather", "payload"])
def test_contracts_are_checked_through_it(change, says):
    given = {"payload": "frames", "as_": "pixels", "steps": [Level()], "gather": {"level": "max"}} | change
    with pytest.raises((ContractError, RecipeError), match=says):
        Each(**given).check(COLUMNS)


@pytest.mark.parametrize(("change", "says"), [
    ({"steps": [Limit(records=1)]}, "each > limit remembers"), ({"steps": [Top(by="n", n=1)]}, "each > top must see all"),
    ({"steps": [Jsonl(path="x")]}, "each > jsonl is a source"), ({"steps": [write("x/")]}, "each > to_jsonl is a sink"),
    ({"steps": [Route(routes={"a": "n > 1", "b": "true"})]}, "each > route has the ports a, b"),
    ({"steps": [each()]}, "each > each is another `each`"), ({"steps": []}, "each wants `steps`"),
    ({"steps": [Level().with_(resources=Resources(gpus=2, gang=True))]}, "each > level is a gang"),
    ({"gather": {"level": "most"}}, "'most' is no way to gather 'level'"), ({"gather": {"id": "count"}}, "cannot make the column 'id'"),
    ({"gather": {"level": "max", "call": {"max": "level"}}}, "makes the column 'level' twice"),
    ({"gather": {"turned": "median"}}, "median is of numbers, and 'turned' is list"), ({"max_failed_items": 2}, "from 0 to 1, got 2"),
], ids=lambda value: None if isinstance(value, dict) else value)
def test_what_cannot_work_inside_is_refused(change, says):
    given = {"payload": "frames", "as_": "pixels", "steps": [Level()], "gather": {"level": "max"}} | change
    with pytest.raises(RecipeError, match=says):
        Each(**given)


def test_what_steps_inside_are_decides_its_fingerprint_and_its_resources():
    folds = ({"level": "max"}, {"level": "min"})
    prints = {each(Level(times=times), gather=gather).fingerprint() for times in (1.0, 2.0) for gather in folds}
    assert len(prints) == 4
    assert each().fingerprint() == each(Level().with_(batch_size=9)).fingerprint()
    needed = [Resources(cpus=2, gpus=0.25, memory_gb=3), Resources(gpus=0.25, memory_gb=1, gpu_memory_gb=8)]
    both = each(*(Level().with_(resources=one) for one in needed)).resources
    assert both == Resources(cpus=2, gpus=0.5, memory_gb=4, gpu_memory_gb=8)


def test_a_time_limit_inside_is_for_one_call():
    told = []
    assert each().timeout_s is None
    limited = each(Level().with_(timeout_s=5.0), Level().with_(timeout_s=9.0))
    assert limited.timeout_s == 9
    limited.setup_node(Context())
    limited.setup(Context(progress=lambda: told.append(1)))
    limited.process(clips([1] * 8).with_columns({"_row": [0], "_unit": [0]}))
    assert len(told) == 1 + 2 + 2


# -- recipes and runs ---------------------------------------------------------------------------------------------

RECIPE = """
read: {jsonl: {path: IN}}
seed: 7
steps:
- each:
    payload: words
    as: word
    steps:
    - map: {n: length(word)}
    - drop: {long: n > 4}
    - drop: {short: n < 2}
      with: {batch_size: 2}
    - sample: 1.0
    gather: {n: [sum, count], word: {list: kept}}
write: {parquet: {path: OUT}}
"""


def test_a_recipe_goes_in_and_out_and_runs(tmp_path):
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"id": f"r{n}", "words": words}) + "\n" for n, words in enumerate(
        [["one", "three", "a", "four"], [], None, ["seven"]])))
    text = RECIPE.replace("IN", str(tmp_path / "in.jsonl")).replace("OUT", str(tmp_path / "out"))
    pipeline = load(text)
    inside = pipeline.sinks[0].inputs[0].node.stage.steps
    assert (inside[2].batch_size, inside[3].seed) == (2, 7)
    changed = load(text, {"steps.each.steps.drop-2.short": "n < 3", "steps.each.steps[2].with.batch_size": "5"}).sinks[0].inputs[0]
    assert (changed.node.stage.steps[2].conditions, changed.node.stage.steps[2].batch_size) == ({"short": "n < 3"}, 5)
    assert dump(load(dump(pipeline))) == dump(pipeline)
    result = Pipeline.of(pipeline).run(workers=0)
    rows = {row["id"]: row for row in pq.read_table(next((tmp_path / "out").rglob("part-*.parquet"))).to_pylist()}
    assert [(rows[f"r{n}"]["n_sum"], rows[f"r{n}"]["n_count"], rows[f"r{n}"]["kept"]) for n in range(4)] == [
        (7, 2, ["one", "four"]), (None, 0, None), (None, 0, None), (None, 0, None)]
    told = next(one for one in result.stats["stages"] if one["name"] == "each")
    assert (told["in"], told["out"]) == (4, {"out": 4})
    assert told["lines"] == ["5 items of words, 2 gathered", "drop: 2 items dropped (long)", "drop-2: 1 item dropped (short)"]
    assert told["inner"]["drop"]["dropped"] == {"long": 2}


def test_what_is_wrong_inside_is_told_with_its_line():
    with pytest.raises(RecipeError) as caught:
        load(RECIPE.replace("length(word)", "length(word").replace("sample: 1.0", "smple: 1.0"))
    assert "recipe:9: steps[0].each.steps[0].map" in str(caught.value)
    assert "recipe:13: steps[0].each.steps[3]" in str(caught.value)
    with pytest.raises(RecipeError, match=r"each\.steps: expected a list of steps, got the text 'map'"):
        load("read: {jsonl: {path: x}}\nsteps: [{each: {payload: p, as: q, steps: map, gather: {n: max}}}]\nwrite: {parquet: {path: o}}")


def test_what_failed_inside_is_counted_and_said():
    counts = Counts(rows_in=2, inner={"level": Counts(rows_in=9, out={"out": 6}, failed=2, made=-1, errors={"ValueError: too bright": 2},
                                                      extra={"calls": 3})})
    counts.add(Counts.from_json(counts.to_json()))
    told, alarm, own = each().findings("each-2", counts)
    assert (told, own) == (Line("18 items of frames, 12 gathered"), Line("each-2 > level saw 18, 6 calls"))
    assert isinstance(alarm, Alarm)
    assert alarm.text.startswith("Stage each-2: 4 of 18 items failed in level (ValueError: too bright): their records are gathered")


class Clips(Source):
    """Three films; one item of the first fails."""

    def units(self):
        return [Unit((SourceRange(uri="films", size_bytes=1),))]

    def read(self, unit):
        yield clips([1, BAD, 3], [BAD], [4])


def test_a_run_conserves_records_and_counts_items(tmp_path):
    graph = from_source(Clips()) >> each(gather={"level": "max"}) >> write(str(tmp_path))
    result = Pipeline.of(graph.named("films", max_failed=0.9)).run(workers=0)
    told = next(one for one in result.stats["stages"] if one["name"] == "each")
    assert (told["in"], told["out"], told["failed"]) == (3, {"out": 2}, 1)
    assert {name: told["inner"]["level"][name] for name in ("in", "failed")} == {"in": 5, "failed": 2}
    assert any("2 of 5 items failed in level" in alarm["text"] for alarm in result.stats["alarms"])
    failed = pq.read_table(next((tmp_path / "failed" / "each").glob("*.parquet"))).to_pylist()
    assert [row["error"] for row in failed] == ["1 of 1 items failed, the first in level: ValueError: too bright"]
    assert Sample(fraction=1.0).inner() == {}
