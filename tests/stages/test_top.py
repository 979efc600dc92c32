"""The best records, as plain Python would choose them."""

import json
import math
import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curator import RecipeError, TextBatch
from curator.front import load
from curator.stages import Top, top
from curator.testing import run_stage


def batch(rows):
    return TextBatch(pa.Table.from_pylist(
        [{"id": f"r{i:03}", "source": "s", "q": q, "l": group} for i, (q, group) in enumerate(rows)],
        pa.schema([("id", pa.string()), ("source", pa.string()), ("q", pa.float64()), ("l", pa.string())])))


def expected(rows, n, order, by_group):
    groups = {}
    for i, (q, group) in enumerate(rows):
        if q is not None and not math.isnan(q):
            groups.setdefault(group if by_group else None, []).append((-q if order == "desc" else q, f"r{i:03}"))
    return sorted(i for some in groups.values() for _, i in sorted(some)[:n])


ROWS = st.lists(st.tuples(st.one_of(st.none(), st.sampled_from([0.0, -1.5, 2.0, math.nan, math.inf]), st.floats()),
                          st.sampled_from([None, "a", "b", ""])), min_size=1, max_size=40)


@given(ROWS, st.integers(0, 5), st.sampled_from(["asc", "desc"]), st.booleans(), st.integers(1, 5))
def test_it_keeps_what_sorting_would_and_drops_the_rest(rows, n, order, by_group, parts):
    stage = Top(by="q", n=n, order=order, key="l" if by_group else None, reason="worse")
    whole = batch(rows)
    cuts = sorted(random.Random(len(rows)).choices(range(len(rows) + 1), k=parts - 1))
    answer = run_stage(stage, *(whole.slice(a, b) for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)))
    kept = sorted(answer["out"].column("id")) if "out" in answer else []
    assert kept == expected(rows, n, order, by_group)
    dropped = answer.get("dropped")
    assert (len(dropped) if dropped else 0) == len(rows) - len(kept)
    assert not dropped or set(dropped.column("reason")) == {"worse"}


def test_candidates_are_sorted_out_on_the_way(monkeypatch):
    monkeypatch.setattr(top, "PRUNE_ROWS", 10)
    rows = [(random.Random(i).random(), "ab"[i % 2]) for i in range(500)]
    answer = run_stage(Top(by="q", n=7, key="l"), *(batch(rows).slice(i, i + 25) for i in range(0, 500, 25)))
    assert sorted(answer["out"].column("id")) == expected(rows, 7, "desc", True)


@pytest.mark.parametrize("values", [["b", "a", None, "c"], [3, 1, None, 10**18 + 1], [True, False, None, True]])
def test_any_value_that_has_an_order_will_do(values):
    ids = list("wxyz")
    rows = TextBatch(pa.table({"id": ids, "source": ["s"] * 4, "v": values}))
    best = max((v, -i) for i, v in enumerate(values) if v is not None)
    assert run_stage(Top(by="v", n=1), rows)["out"].column("id") == [ids[-best[1]]]
    coded = rows.with_columns({"v": rows.rows.column("v").combine_chunks().dictionary_encode()})
    assert run_stage(Top(by="v", n=1), coded)["out"].column("id") == [ids[-best[1]]]


def test_records_with_one_id_are_counted_one_by_one():
    twice = TextBatch(pa.table({"id": ["a", "a", "a", "b"], "source": ["s"] * 4, "v": [5, 5, 1, 4]}))
    assert run_stage(Top(by="v", n=2), twice)["out"].rows.to_pydict()["v"] == [5, 5]
    assert run_stage(Top(by="v", n=3), twice)["out"].rows.to_pydict()["v"] == [5, 5, 4]


@pytest.mark.parametrize(("options", "told"), [({"n": -1}, "n must be"), ({"n": 1, "order": "up"}, "order must be"),
                                               ({"n": 1, "shards": 0}, "shards must be")])
def test_nonsense_is_refused(options, told):
    with pytest.raises((RecipeError, ValueError), match=told):
        Top(by="q", **options)


def test_in_a_recipe(tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"id": f"r{i:02}", "q": i, "l": "ab"[i % 2]}) + "\n" for i in range(40)))
    recipe = tmp_path / "top.yaml"
    recipe.write_text(f"""
name: best
read: {{jsonl: {{path: {source}}}}}
steps:
  - top: {{by: q, n: 3, key: l, order: asc, reason: many}}
write: {{jsonl: {{path: {tmp_path / 'out'}, compression: none}}}}
""")
    result = load(str(recipe), {}).run(workers=0)
    kept = [json.loads(line)["id"] for path in (tmp_path / "out/data").glob("*.jsonl") for line in path.read_text().splitlines()]
    assert sorted(kept) == ["r00", "r01", "r02", "r03", "r04", "r05"]
    assert [s["dropped"] for s in result.stats["stages"] if s["name"] == "top"] == [{"many": 34}]
