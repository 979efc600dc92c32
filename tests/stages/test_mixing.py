"""Scores to bins, repeats, mixtures and a random order: against known values and plain Python."""

import json
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator import RecipeError, TextBatch, read, write
from curator.front import load
from curator.stages import Mix, Repeat, Sample, ScoreBins, Shuffle, Split
from curator.testing import run_stage

TENTHS = [round(0.1 * k, 1) for k in range(1, 11)]


def batch(ids=None, **columns):
    rows = len(ids if ids is not None else next(iter(columns.values())))
    ids = ids or [f"r{i:04}" for i in range(rows)]
    return TextBatch(pa.table({"id": pa.array(ids, pa.string()), "source": ["s"] * rows, **columns}))


def bins_of(stage, *batches, column="q_bin"):
    rows = run_stage(stage, *batches)["out"].rows
    return dict(zip(rows.column("id").to_pylist(), rows.column(column).to_pylist(), strict=True))


# -- score_bins -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scores", "weights", "expected"), [
    (TENTHS, None, [2, 4, 6, 8, 10, 12, 14, 16, 18, 19]),
    (TENTHS, [100] + [1] * 9, [18] * 4 + [19] * 6),
    ([0.0] * 4 + [5.0] * 4, None, [10] * 4 + [19] * 4),
    (TENTHS, [0] * 10, [2, 4, 6, 8, 10, 12, 14, 16, 18, 19]),
], ids=["equal weights", "one heavy record", "ties", "no weight at all"])
def test_bins_are_the_percentiles_of_the_corpus(scores, weights, expected):
    columns = {"q": scores} if weights is None else {"q": scores, "w": weights}
    whole = batch(**columns)
    stage = ScoreBins(scores="q", weight=None if weights is None else "w")
    for parts in ((whole,), (whole.slice(0, 3), whole.slice(3, 10))):
        assert list(bins_of(stage, *parts).values()) == expected


SCORES = st.lists(st.tuples(st.one_of(st.none(), st.sampled_from([0.0, 1.0, math.nan]), st.floats(-5, 5)), st.integers(0, 3),
                            st.sampled_from(["a", "b", None])), min_size=1, max_size=40)


@given(SCORES, st.integers(2, 7))
def test_an_edge_is_the_first_score_by_which_so_much_weight_is_reached(rows, bins):
    q, w, by = (list(column) for column in zip(*rows, strict=True))
    told = list(bins_of(ScoreBins(scores="q", bins=bins, weight="w", by="by"),
                        batch(q=pa.array(q, pa.float64()), w=w, by=pa.array(by, pa.string()))).values())
    for group in set(by):
        known = sorted((q[i], w[i]) for i in range(len(q)) if by[i] == group and q[i] is not None and not math.isnan(q[i]))
        if not any(weight for _, weight in known):
            known = [(score, 1) for score, _ in known]
        total, edges = sum(weight for _, weight in known), []
        for k in range(1, bins):
            reached = 0
            for score, weight in known:
                reached += weight
                if reached >= Fraction(k * total, bins):
                    edges.append(score)
                    break
        for i, score in enumerate(q):
            if by[i] == group:
                expected = None if score is None or math.isnan(score) else sum(edge <= score for edge in edges)
                assert told[i] == expected


def test_a_sample_gives_nearly_the_same_edges_whatever_the_order_of_records():
    scores = np.random.default_rng(0).normal(size=5000)
    whole = batch(q=scores)
    exact = np.array(list(bins_of(ScoreBins(scores="q"), whole).values()))
    sampled = ScoreBins(scores="q", sample=500)
    one = bins_of(sampled, whole.slice(0, 1700), whole.slice(1700, 5000))
    assert one == bins_of(sampled, whole.take(np.arange(5000)[::-1]))
    assert np.abs(np.array(list(one.values())) - exact).mean() < 0.5


def test_given_edges_need_no_look_at_the_corpus_and_make_one_bin_more_than_they_are():
    stage = ScoreBins(scores="q", edges={"q": [1.5, 2.5]})
    assert list(bins_of(stage, batch(q=[0.0, 1.5, 2.4, 9.0, None, math.nan])).values()) == [0, 1, 1, 2, None, None]


@pytest.mark.parametrize(("ensemble", "expected"), [("max", [2, 2, 1, None]), ("min", [0, 2, 1, None]), ("mean", [1, 2, 1, None]),
                                                    ({"q": 3, "r": 1}, [1, 2, 1, None])], ids=["max", "min", "mean", "weights"])
def test_several_scores_make_one_bin(ensemble, expected):
    stage = ScoreBins(scores=["q", "r"], edges={"q": [1, 2], "r": [10, 20]}, ensemble=ensemble, column="level")
    rows = batch(q=[0.0, 5.0, None, None], r=[25.0, 25.0, 15.0, math.nan])
    assert list(bins_of(stage, rows, column="level").values()) == expected


@pytest.mark.parametrize(("options", "told"), [
    ({"scores": []}, "a column of numbers"), ({"scores": "q", "bins": 1}, "bins must be"),
    ({"scores": ["q", "r"], "edges": {"q": [1]}}, "edges must be given for each"), ({"scores": "q", "edges": {"q": [2, 1]}}, "ascending"),
    ({"scores": "q", "ensemble": "median"}, "ensemble must be"), ({"scores": ["q", "r"], "ensemble": {"q": 1}}, "ensemble must have")])
def test_nonsense_in_score_bins_is_refused(options, told):
    with pytest.raises(RecipeError, match=told):
        ScoreBins(**options)


# -- repeat ---------------------------------------------------------------------------------------------------------


def test_copies_have_ids_of_their_own_and_name_their_record():
    answer = run_stage(Repeat(by="bin", factors={2: 3, 0: 0}), batch(["a", "b", "c", "d"], bin=[2, 1, 0, None]))
    rows = answer["out"].rows
    assert rows.column("id").to_pylist() == ["a", "a~2", "a~3", "b", "d"]
    assert rows.column("copy_of").to_pylist() == [None, "a", "a", None, None]
    assert answer["dropped"].column("id") == ["c"]
    assert answer["dropped"].column("reason") == ["repeat"]


@given(st.floats(0, 4), st.integers(0, 99))
def test_the_rest_of_a_factor_is_met_on_average(times, seed):
    out = run_stage(Repeat(times=times, seed=seed), batch(q=[0] * 2000)).get("out")
    ids = [] if out is None else out.column("id")
    assert len(set(ids)) == len(ids)
    assert abs(len(ids) / 2000 - times) < 0.06
    assert set(Counter(i.split("~")[0] for i in ids).values()) <= {math.floor(times), math.ceil(times)}


def test_a_column_says_how_often_and_nonsense_in_it_fails_the_record():
    assert run_stage(Repeat(column="n"), batch(["a", "b"], n=[2, None]))["out"].column("id") == ["a", "a~2", "b"]
    with pytest.raises(ValueError, match="0 to 1000"):
        Repeat(column="n").process(batch(["a"], n=[-1]))


# -- mix ------------------------------------------------------------------------------------------------------------


def mixed(stage, *batches):
    answer = run_stage(stage, *batches)
    out, dropped = answer.get("out"), answer.get("dropped")
    return Counter() if out is None else Counter(out.column("by")), 0 if dropped is None else len(dropped)


def test_the_scarcest_group_sets_the_size_of_the_whole():
    records = batch(by=["web"] * 3000 + ["code"] * 300 + ["spam"] * 50)
    kept, dropped = mixed(Mix(by="by", shares={"web": 2, "code": 1}), records.slice(0, 1000), records.slice(1000, 3350))
    assert abs(kept["web"] - 600) <= 2
    assert kept["code"] == 300
    assert dropped == 3350 - sum(kept.values())
    kept, _ = mixed(Mix(by="by", shares={"web": 2, "code": 1}, repeats=2.5), records)
    assert abs(kept["web"] - 1500) <= 2
    assert abs(kept["code"] - 750) <= 2


def test_a_total_is_met_by_weight_and_a_smaller_one_is_part_of_a_larger_one():
    rng = np.random.default_rng(1)
    records = batch(by=rng.choice(["a", "b"], 4000).tolist(), tokens=rng.integers(1, 100, 4000))
    weight = dict(zip(records.column("id"), records.column("tokens"), strict=True))
    chosen = {}
    for total in (20_000, 60_000):
        out = run_stage(Mix(by="by", shares={"a": 0.75, "b": 0.25}, weight="tokens", total=total), records)["out"]
        made = Counter()
        for i, by in zip(out.column("id"), out.column("by"), strict=True):
            made[by] += weight[i]
        assert abs(made["a"] - 0.75 * total) <= 200
        assert abs(made["b"] - 0.25 * total) <= 200
        chosen[total] = set(out.column("id"))
    assert chosen[20_000] < chosen[60_000]


def test_a_group_without_records_and_a_total_too_large_are_told(tmp_path):
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"id": f"r{i:03}", "by": "ab"[i % 2]}) + "\n" for i in range(200)))
    recipe = tmp_path / "mix.yaml"
    recipe.write_text(f"""
name: mixture
read: {{jsonl: {{path: {tmp_path / 'in.jsonl'}}}}}
steps:
  - mix: {{by: by, shares: {{a: 1, b: 1, books: 2}}, total: 1000}}
write: {{jsonl: {{path: {tmp_path / 'out'}, compression: none}}}}
""")
    result = load(str(recipe), {}).run(workers=0)
    told = " ".join(alarm["text"] for alarm in result.stats["alarms"])
    assert "no record of books" in told
    assert "enough for 200 at these shares" in told


@pytest.mark.parametrize(("options", "told"), [({"shares": {}}, "mix wants"), ({"shares": {"a": 0}}, "above 0"),
                                               ({"shares": {"a": 1}, "total": 0}, "total must be"),
                                               ({"shares": {"a": 1}, "repeats": 0.5}, "repeats must be")])
def test_nonsense_in_mix_is_refused(options, told):
    with pytest.raises(RecipeError, match=told):
        Mix(by="by", **options)


# -- shuffle, sample by weight --------------------------------------------------------------------------------------


def test_every_record_comes_once_in_an_order_of_its_own_for_each_seed():
    records = batch(q=list(range(500)))
    orders = [run_stage(Shuffle(seed=seed), records.slice(0, 200), records.slice(200, 500))["out"].column("q") for seed in (0, 1)]
    assert all(sorted(order) == list(range(500)) for order in orders)
    assert orders[0] != orders[1]
    assert orders[0] == run_stage(Shuffle(seed=0), records.take(np.arange(500)[::-1]))["out"].column("q")
    assert abs(np.corrcoef(orders[0], np.arange(500))[0, 1]) < 0.15


def test_a_shuffled_data_set_is_the_same_in_each_run(tmp_path):
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"id": f"r{i:03}", "q": i}) + "\n" for i in range(300)))
    orders = []
    for name in ("one", "two"):
        recipe = tmp_path / "shuffle.yaml"
        recipe.write_text(f"""
name: order
read: {{jsonl: {{path: {tmp_path / 'in.jsonl'}}}}}
steps: [shuffle: {{seed: 7, shards: 3}}]
write: {{jsonl: {{path: {tmp_path / name}, compression: none}}}}
""")
        result = load(str(recipe), {}).run(workers=0)
        assert result.records == {"in": 300, "made": 0, "written": 300, "dropped": 0, "duplicate": 0, "failed": 0, "absorbed": 0}
        assert not [alarm for alarm in result.stats["alarms"] if alarm["level"] == "error"]
        files = sorted((tmp_path / name / "data").glob("*.jsonl"))
        rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        assert not any("shuffle_place" in row for row in rows)
        orders.append([row["q"] for row in rows])
    assert orders[0] == orders[1] != sorted(orders[0])
    assert sorted(orders[0]) == list(range(300))


def test_records_of_more_weight_are_likelier_in_a_sample():
    records = batch(w=pa.array([0.1] * 1000 + [0.9] * 1000 + [None] * 10 + [5.0] * 10))
    kept = Counter(run_stage(Sample(weight="w"), records)["out"].column("w"))
    assert abs(kept[0.1] - 100) < 40
    assert abs(kept[0.9] - 900) < 40
    assert (kept[None], kept[5.0]) == (0, 10)


def test_records_of_one_value_are_divided_together_and_shares_are_met():
    records = batch(site=[f"site {i // 5}" if i % 7 else None for i in range(5000)])
    parts = run_stage(Split(shares={"train": 0.8, "validation": 0.15, "test": 0.05}, by="site"), records)
    sites = {port: {site for site in rows.column("site") if site} for port, rows in parts.items()}
    assert not sites["train"] & sites["validation"] | sites["train"] & sites["test"]
    assert sum(len(rows) for rows in parts.values()) == 5000
    assert abs(len(parts["train"]) / 5000 - 0.8) < 0.04
    alone = run_stage(Split(shares={"train": 0.8, "validation": 0.15, "test": 0.05}, by="site"), records.slice(100, 200))
    assert set(alone["train"].column("id")) <= set(parts["train"].column("id"))


@pytest.mark.parametrize(("shares", "told"), [({}, "sum to 1"), ({"a": 0.5}, "sum to 1"), ({"a": 0, "b": 1}, "above 0"),
                                              ({"dropped": 1}, "cannot be the name")])
def test_nonsense_in_split_is_refused(shares, told):
    with pytest.raises(RecipeError, match=told):
        Split(shares=shares)


def test_a_run_without_copies_raises_no_alarm(tmp_path):
    rows = [{"id": f"r{n}", "kind": "ab"[n % 2]} for n in range(40)]
    for stage in (Repeat(), Mix(by="kind", shares={"a": 1, "b": 1})):
        result = (read(rows) >> stage >> write(str(tmp_path / stage.name))).run(workers=0)
        assert not [alarm for alarm in result.stats["alarms"] if "copy_of" in alarm["text"]]
