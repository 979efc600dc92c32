"""Of equal records the best is kept, whatever comes when, in how many shards."""

import json
import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from curator_dedup import DedupExact
from curator_dedup.exact import cluster as exact_cluster
from curator_dedup.exact.cluster import VALUE, Equals, Value, ValueBatch, Values
from curator_dedup.shared.keep import Keep
from curator_dedup.shared.rows import VERDICT, VerdictBatch
from hypothesis import given
from hypothesis import strategies as st

from curator import RecipeError, read, write
from curator.api.tasks import TextBatch
from curator.front import load
from curator.pipeline.plan import make_plan
from curator.testing import check_stage, run_stage

SCHEMA = pa.schema([("id", pa.string()), ("source", pa.string()), ("text", pa.string()), ("quality", pa.float64())])
TEXT = Value(column=("text",))


def batch(rows):
    return TextBatch(pa.Table.from_pylist(rows, SCHEMA))


def values(rows, keep="first", value=TEXT, reference=None):
    answer = run_stage(Values(value=value, keep=Keep.parse(keep), reference=reference), batch(rows))
    return answer.get("out", ValueBatch(VALUE.empty_table()))


def verdicts(stage, given, cuts=()):
    """What the stage says of these records, given in batches that are cut here."""
    answer = run_stage(stage, *(given.slice(a, b) for a, b in zip([0, *cuts], [*cuts, len(given)], strict=True)))
    return answer["out"].visible().to_pylist() if "out" in answer else []


def best_key(keep):
    def key(row):
        quality = (row["quality"] is None, -(row["quality"] or 0))
        ranks = {"first": (), "quality": quality, "both": (-len(row["text"]), *quality), "none": ()}
        return ranks[keep], row["id"], row["source"]
    return key


KEEPS = {"first": "first", "quality": {"by": "quality"}, "both": ["longest", {"by": "quality", "order": "desc"}], "none": "none"}
QUALITY = dict(zip([(i, s) for i in "abcde" for s in "st"], [None, 0.5, 0.5, 2.0, 1.0] * 2, strict=True))
ROWS = st.lists(st.builds(
    lambda name, text: {"id": name[0], "source": name[1], "text": text, "quality": QUALITY[name]},
    st.sampled_from(list(QUALITY)), st.sampled_from(["x", "X", " x", "yy", "", None])), min_size=1, max_size=20)


@given(ROWS, st.sampled_from(list(KEEPS)), st.booleans(), st.booleans(), st.randoms(use_true_random=False))
def test_the_best_of_equal_records_is_kept_whatever_the_order(rows, keep, normalize, has_reference, rng):
    value = Value(column=("text",), normalize=normalize)
    given = values(rows, KEEPS[keep], value, "quality = 2" if has_reference else None)
    stage = Equals(drops_all=keep == "none")
    told = verdicts(stage, given)
    shuffled = rng.sample(range(len(given)), len(given))
    replay = verdicts(stage, given.take(shuffled), sorted(rng.choices(range(len(given) + 1), k=2)))
    assert sorted(told, key=repr) == sorted(replay, key=repr)
    check_verdicts(rows, keep, normalize, has_reference, told)


def check_verdicts(rows, keep, normalize, has_reference, told):
    groups = {}
    for row in rows:
        if row["text"] is not None:
            groups.setdefault(row["text"].strip().lower() if normalize else row["text"], []).append(row)
    expected = Counter()
    for group in groups.values():
        reference = [row for row in group if has_reference and row["quality"] == 2.0]
        best = min(reference or group, key=best_key(keep))
        for row in group if len(group) > 1 else []:
            kept = row in reference or (keep != "none" and (row["id"], row["source"]) == (best["id"], best["source"]))
            expected[row["id"], row["source"], None if kept else best["id"], None if kept else 1.0, len(group)] += 1
    assert Counter((v["id"], v["source"], v["duplicate_of"], v["similarity"], v["cluster_size"]) for v in told) == expected
    assert len({v["cluster"] for v in told}) == sum(len(group) > 1 for group in groups.values())


def test_verdicts_say_how_large_clusters_are():
    texts = [text for at, text in enumerate("vwxyz") for _ in range(at + 1)]
    answer = run_stage(Equals(), values([{"id": f"{text}{at}", "source": "s", "text": text} for at, text in enumerate(texts)]))
    assert isinstance(answer["out"], VerdictBatch)
    found = answer["out"].visible()
    assert found.select(VERDICT.names).schema.equals(VERDICT)
    assert {(row["id"][0], row["cluster_size"], row["cluster_sizes"]) for row in found.to_pylist()} == {
        ("w", 2, "2"), ("x", 3, "3-4"), ("y", 4, "3-4"), ("z", 5, "5-8")}
    assert {row["duplicate_of"] for row in found.to_pylist()} == {None, "w1", "x3", "y6", "z10"}


def test_candidates_are_sorted_out_on_the_way(monkeypatch):
    monkeypatch.setattr(exact_cluster, "SORT_OUT_RECORDS", 10)
    rng = random.Random(1)
    rows = [{"id": f"{i:04}", "source": "s", "text": str(rng.randrange(150)), "quality": rng.random()} for i in range(600)]
    told = verdicts(Equals(), values(rows, {"by": "quality"}), range(20, 600, 20))
    best = {row["text"]: row["id"] for row in sorted(rows, key=lambda row: row["quality"])}
    assert {v["duplicate_of"] for v in told if v["duplicate_of"]} <= set(best.values())
    assert {v["id"] for v in told if not v["duplicate_of"]} <= set(best.values())


def test_many_values_take_little_memory():
    stage, rows = Equals(), 20_000
    stage.clear()
    stage.absorb(values([{"id": f"r{i}", "source": "s", "text": str(i)} for i in range(rows)]))
    stage._found.best(np.array([0]))
    held = stage._found.index.nbytes + stage._found.counts.nbytes + sum(t.nbytes for t in stage._found._candidates)
    assert held / rows < 150


def test_a_value_that_equals_its_scope_is_like_any_other():
    rows = [{"id": str(i), "source": text, "text": text} for i, text in enumerate(["s", "t", "s", "u"])]
    told = verdicts(Equals(), values(rows, value=Value(column=("text",), scope="source")))
    assert [(v["id"], v["duplicate_of"]) for v in told] == [("0", None), ("2", "0")]


def test_what_has_no_value_has_no_verdict():
    assert len(values([{"id": "a", "source": "s"}, {"id": "b", "source": "s"}])) == 0
    assert verdicts(Equals(), values([])) == []


def test_the_parts_keep_the_rules():
    rows = [{"id": f"r{i}", "source": "s", "text": text, "quality": quality} for i, (text, quality) in enumerate(
        [("x", 1.0), ("y", 2.0), ("x", 3.0), (None, 1.0), ("z", None), ("y", 0.5)])]
    check_stage(Values(value=TEXT, keep=Keep.parse({"by": "quality"}), reference="quality > 2"), batch(rows))
    check_stage(Equals(), values(rows, {"by": "quality"}), skip={"nulls", "needs"})  # none of its columns has nulls


# -- in a run -----------------------------------------------------------------------------------------------------


def write_texts(folder, files):
    folder.mkdir(exist_ok=True)
    for name, rows in files.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder / "*.jsonl")


def corpus(seed=1, rows=200):
    rng = random.Random(seed)
    return [{"id": f"r{i:03}", "text": f"text {rng.randrange(60)}" if i % 9 else None, "quality": rng.random()}
            for i in range(rows)]


def survivors(out):
    return sorted(record for path in (out / "data").glob("*.parquet") for record in pq.read_table(path).column("id").to_pylist())


def test_a_run_gives_the_same_records_whatever_the_files_the_shards_and_the_workers(tmp_path):
    rows = corpus()
    best = {}
    for row in sorted(rows, key=lambda row: row["quality"]):
        best[row["text"] or row["id"]] = row["id"]
    for at, (shards, workers) in enumerate([(1, 0), (5, 0), (3, 2)]):
        random.Random(at).shuffle(rows)
        cut = 40 * (at + 1)
        pattern = write_texts(tmp_path / f"in{at}", {"a": rows[:cut], "b": rows[cut:]})
        out = tmp_path / f"out{at}"
        stage = DedupExact(mode="cluster", keep={"by": "quality"}, shards=shards)
        result = (read(pattern) >> stage >> write(str(out), "parquet")).run(workers=workers)
        assert survivors(out) == sorted(best.values())
        told, = [s for s in result.stats["stages"] if s["name"] == "dedup.exact"]
        assert (told["in"], told["out"]["out"], told["duplicate"]) == (200, len(best), 200 - len(best))
        assert result.records == {"in": 200, "made": 0, "written": len(best), "dropped": 0, "duplicate": 200 - len(best),
                                  "failed": 0, "absorbed": 0}
        assert not [alarm for alarm in result.stats["alarms"] if alarm["level"] == "error"]
        found = pq.read_table(out / "clusters" / "dedup.exact").to_pylist()
        clusters = {row["cluster"] for row in found}
        assert Counter(row["duplicate_of"] is None for row in found) == {False: 200 - len(best), True: len(clusters)}
        assert sum(told["columns"]["cluster_sizes"]["values"].values()) == len(found)
        copies = [row for path in (out / "duplicate" / "dedup.exact").glob("*") for row in pq.read_table(path).to_pylist()]
        assert {(row["id"], row["duplicate_of"], row["cluster"]) for row in copies} == {
            (row["id"], row["duplicate_of"], row["cluster"]) for row in found if row["duplicate_of"]}


def test_both_modes_keep_equally_many(tmp_path):
    pattern = write_texts(tmp_path / "in", {"a": corpus(2), "b": corpus(3)})
    kept = []
    for mode in ("stream", "cluster"):
        out = tmp_path / mode
        result = (read(pattern) >> DedupExact(mode=mode, scope="source") >> write(str(out), "parquet")).run(workers=0)
        kept.append((result.records["written"], result.records["duplicate"]))
    assert kept[0] == kept[1]
    assert kept[0][1] > 100


def test_it_is_one_stage_of_a_recipe(tmp_path):
    pattern = write_texts(tmp_path / "in", {"a": corpus()})
    pipeline = load(f"""
read: {{jsonl: {{path: "{pattern}"}}}}
steps:
  - dedup.exact: {{mode: cluster, keep: [{{by: quality, order: asc}}, longest], reference: quality > 0.9, normalize: true}}
write: {{jsonl: {{path: "{tmp_path / 'out'}"}}}}
""")
    plan = make_plan(pipeline)
    assert {step.part_of for step in plan.steps} == {"", "dedup.exact"}
    assert pipeline.run(workers=0).ok


def test_records_that_are_there_twice_in_all_go_on_once(tmp_path):
    rows = [{"id": i, "text": text} for i, text in [("b", "x"), ("a", "x"), ("a", "x"), ("a", "y"), ("c", "z")]]
    pattern = write_texts(tmp_path / "in", {"a": rows})
    for keep, left in (("first", ["a", "a", "c"]), ("none", ["a", "c"])):
        (read(pattern) >> DedupExact(mode="cluster", keep=keep) >> write(str(tmp_path / keep), "parquet")).run(workers=0)
        assert survivors(tmp_path / keep) == left


def test_references_stay_and_what_equals_them_goes(tmp_path):
    rows = [{"id": f"{i:02}", "text": f"t{i % 4}", "kind": "benchmark" if i in (6, 10, 13) else "web"} for i in range(16)]
    pattern = write_texts(tmp_path / "in", {"a": rows})
    stage = DedupExact(mode="cluster", reference="kind = 'benchmark'")
    (read(pattern) >> stage >> write(str(tmp_path / "out"), "parquet")).run(workers=0)
    assert survivors(tmp_path / "out") == ["00", "03", "06", "10", "13"]


@pytest.mark.parametrize(("parameters", "told"), [
    ({"keep": "longest"}, "mode: cluster"), ({"reference": "a > 1"}, "mode: cluster"),
    ({"mode": "clusters"}, "stream or cluster"), ({"normalize": "html"}, "text or url"), ({"column": []}, "wants a column"),
    ({"mode": "cluster", "keep": "longst"}, "longest"),
    ({"mode": "cluster", "shards": 0}, "shards"), ({"mode": "cluster", "reference": "select 1"}, "reference"),
])
def test_nonsense_is_refused(parameters, told):
    with pytest.raises(RecipeError, match=told):
        DedupExact(**parameters)


def test_columns_that_will_not_do_are_refused_before_the_run(tmp_path):
    pattern = write_texts(tmp_path / "in", {"a": corpus()})
    for parameters, told in (({"keep": {"by": "text"}}, "'text' is string"), ({"keep": {"by": "qualty"}}, "qualty"),
                             ({"reference": "text > 0.5 + quality_"}, "quality_"), ({"scope": "langage"}, "langage")):
        with pytest.raises(RecipeError, match=told):
            make_plan(read(pattern) >> DedupExact(mode="cluster", **parameters) >> write(str(tmp_path / "out")))
