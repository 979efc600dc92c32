"""Edges between similar records, beside a search through all pairs."""

import itertools
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from curator_dedup.near import candidates, pairs
from curator_dedup.near.measures import Hamming, MinHash, meet
from curator_dedup.near.pairs import FindPairs, jaccard
from curator_dedup.near.sketch import Sketch
from curator_dedup.shared import store
from curator_dedup.shared.keep import Keep
from curator_dedup.shared.rows import EDGE, EdgeBatch, SketchBatch
from hypothesis import given, settings
from hypothesis import strategies as st

from curator import Batch, Context, RecipeError
from curator.api.counts import Counts
from curator.api.keys import shard_of
from curator.testing import check_stage, run_stage

MEASURE = MinHash(column="f", threshold=0.6, rows=2, bands=16)


BY_RANK = Keep.parse({"by": "rank", "order": "asc"})


def records(values, *, kind=None, ids=None, rank=None, **columns):
    count = len(values)
    return Batch(pa.table({
        "id": ids or [f"r{i:05}" for i in range(count)], "source": ["s"] * count,
        "f": pa.array(values, kind or pa.list_(pa.uint32())), "rank": pa.array(rank or [0.0] * count, pa.float64())} | columns))


def shards_of(rows, measure, shards=1, **options):
    """The rows of each shard, as the spool would divide them."""
    rows = run_stage(Sketch(measure=measure, keep=BY_RANK, shards=shards, **options), rows).get("out")
    if rows is None:
        return []
    place = shard_of(rows.rows.column("shard"), shards)
    return [rows.filter(place == shard) for shard in range(shards)]


def edges(rows, measure=MEASURE, **options):
    """All edges by id and source of both ends."""
    return {(e["id"], e["source"], e["other_id"], e["other_source"]): e for e in all_edges(rows, measure, **options)}


def all_edges(rows, measure=MEASURE, *, shards=1, exact=False, memory_bytes=1 << 30, parts=1, **options):
    """All edges, those that several shards find once; in an order of their own."""
    stage, found = FindPairs(measure=measure, shards=shards, exact=exact, memory_bytes=memory_bytes), {}
    for shard in shards_of(rows, measure, shards, **options):
        cuts = np.linspace(0, len(shard), parts + 1).astype(int).tolist()
        answer = run_stage(stage, *(shard.slice(a, b) for a, b in itertools.pairwise(cuts)))
        assert "out" not in answer or type(answer["out"]) is EdgeBatch
        found |= {repr(edge): edge for edge in answer["out"].rows.to_pylist()} if "out" in answer else {}
    return [found[told] for told in sorted(found)]


def near_copies(rng, groups, count=32, *, most=6, similarity=(0.5, 1.0)):
    """Signatures: of each group a first one, and others that have each value of the first with this probability."""
    made = []
    for _ in range(groups):
        first = rng.integers(0, 2**32, count, dtype=np.uint32)
        for _ in range(int(rng.integers(1, most + 1))):
            other = rng.integers(0, 2**32, count, dtype=np.uint32)
            made.append(np.where(rng.random(count) < rng.uniform(*similarity), first, other))
    return [m.tolist() for m in made]


def all_pairs(rows, measure):
    """Every pair that is similar, by their ids, whatever keys it has."""
    present, sketches = measure.encode(rows)
    places = np.flatnonzero(present)
    a, b = np.array(list(itertools.combinations(places, 2))).reshape(-1, 2).T
    similarity = measure.similarity(sketches[a], sketches[b])
    ids = rows.rows.column("id").to_pylist()
    least = np.float32(measure.least(sketches.shape[1]))
    return {(ids[i], ids[j]): s for i, j, s in zip(a, b, similarity, strict=True) if s >= least}


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.integers(1, 8), st.integers(1, 4), st.sampled_from([1, 3000, 1 << 30]),
       st.sampled_from([2, 4, 64]))
def test_the_edges_are_the_same_whatever_the_order_the_shards_and_the_memory(seed, shards, parts, memory_bytes, small):
    rng = np.random.default_rng(seed)
    signatures = near_copies(rng, 12, most=9)
    count = len(signatures)
    signatures += [signatures[0]] * 3
    ids = [f"r{i:05}" for i in range(count)] + ["r00000", "twice", "r00001"]
    rows = records(signatures, ids=ids, rank=[float(r) for r in rng.integers(0, 4, count)] + [0.0, 1.0, 0.0],
                   bench=pa.array(rng.random(count + 3) < 0.2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "SMALL", small)
        expected = all_edges(rows, reference="bench")
        patch.setattr(store, "RUN", 50)
        patch.setattr(candidates, "PAIRS", 20)
        patch.setattr(pairs, "PAIRS", 20)
        patch.setattr(pairs, "EDGES", 7)
        shuffled = rows.take(rng.permutation(len(rows)))
        assert all_edges(shuffled, shards=shards, parts=parts, memory_bytes=memory_bytes, reference="bench") == expected


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.booleans())
def test_an_edge_is_a_pair_that_is_similar_the_better_record_first(seed, few):
    rng = np.random.default_rng(seed)
    signatures = near_copies(rng, 8)
    count = len(signatures)
    rows = records(signatures, rank=[float(r) for r in rng.integers(-2, 3, count)], bench=pa.array(rng.random(count) < 0.3))
    similar = all_pairs(rows, MEASURE)
    known = {row["id"]: row for row in rows.rows.to_pylist()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "SMALL", 2 if few else 64)
        found = edges(rows, reference="bench")
    for (a, _, b, _), edge in found.items():
        assert edge["similarity"] == similar[min(a, b), max(a, b)]
        order = [(not known[i]["bench"], known[i]["rank"] + 0.0, i) for i in (a, b)]
        assert order[0] < order[1]
        assert (edge["rank"], edge["other_rank"]) == ([order[0][1]], [order[1][1]])
        assert (edge["reference"], edge["other_reference"]) == (known[a]["bench"], known[b]["bench"])
        assert not (edge["reference"] and edge["other_reference"])


def test_recall_is_that_of_bands_and_rows():
    rng, measure = np.random.default_rng(11), MinHash(column="f", threshold=0.7, rows=4, bands=8)
    rows = records(near_copies(rng, 1500, most=2, similarity=(0.8, 0.95)))
    similar, (_, sketches) = {}, measure.encode(rows)
    for at in range(len(rows) - 1):  # a pair stands side by side
        alike = measure.similarity(sketches[at:at + 1], sketches[at + 1:at + 2])[0]
        if alike >= np.float32(0.7):
            similar[f"r{at:05}", f"r{at + 1:05}"] = alike
    found = {(a, b) for a, _, b, _ in edges(rows, measure)}
    assert found <= set(similar)
    expected = np.mean([meet(s, 8, 4) for s in similar.values()])
    assert len(similar) > 500
    assert len(found) / len(similar) >= expected - 3 * np.sqrt(expected * (1 - expected) / len(similar))


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(0, 3), st.sets(st.integers(0, 63), max_size=5)), max_size=25), st.integers(1, 8))
def test_all_hashes_within_a_distance_are_found_where_blocks_can(hashes, shards):
    distance, bases = 4, [0, 2**64 - 1, 0x0123456789ABCDEF, 0x0123456789ABCDE0]
    values = [bases[base] ^ sum(1 << bit for bit in bits) for base, bits in hashes]
    rows = records(values, kind=pa.uint64())
    found = {(a, b) for a, _, b, _ in edges(rows, Hamming("f", distance), shards=shards)} if hashes else set()
    ids = rows.column("id")
    assert found == {(ids[i], ids[j]) for i, j in itertools.combinations(range(len(values)), 2)
                     if (values[i] ^ values[j]).bit_count() <= distance}


def shingled(rng, groups):
    """Sets that share members, and signatures of them."""
    chosen = []
    for _ in range(groups):
        base = rng.choice(10**6, 60, replace=False)
        for _ in range(4):
            gone = rng.random(60) < rng.uniform(0, 0.3)
            chosen.append(sorted({*base[~gone].tolist(), *rng.choice(10**6, int(gone.sum())).tolist()}))
    family = rng.integers(1, 2**63, 64, dtype=np.uint64) | np.uint64(1)
    hashed = ((np.array(c, np.uint64)[:, None] * family) >> np.uint64(32) for c in chosen)
    return chosen, [h.min(axis=0).tolist() for h in hashed]


@pytest.mark.parametrize("memory_bytes", [1, 1 << 30])
def test_exact_verification_compares_shingles(monkeypatch, memory_bytes):
    monkeypatch.setattr(pairs, "BLOCK_SHINGLES", 500)
    chosen, signatures = shingled(np.random.default_rng(2), 40)
    measure = MinHash(column="f", threshold=0.6, rows=1)
    rows = records(signatures, shingles=pa.array(chosen, pa.list_(pa.uint32())))
    true = {}
    for i, j in itertools.combinations(range(len(chosen)), 2):
        a, b = set(chosen[i]), set(chosen[j])
        if np.float32(len(a & b) / len(a | b)) >= np.float32(0.6):
            true[f"r{i:05}", f"r{j:05}"] = len(a & b) / len(a | b)
    found = {(a, b): e["similarity"] for (a, _, b, _), e in edges(rows, measure, exact=True, shingles="shingles", parts=3,
                                                                 memory_bytes=memory_bytes).items()}
    assert found == {pair: pytest.approx(similarity) for pair, similarity in true.items()}
    estimated = {(a, b) for a, _, b, _ in edges(rows, measure)}
    assert estimated != set(true)


@given(st.lists(st.sets(st.integers(0, 2**32 - 1) | st.integers(0, 5), max_size=8), min_size=1, max_size=10), st.randoms())
def test_jaccard_is_that_of_sets(sets, random):
    a, b = ([random.randrange(len(sets)) for _ in range(7)] for _ in range(2))
    values = np.array([v for s in sets for v in sorted(s)], dtype=np.uint32)
    offsets = np.cumsum([0, *map(len, sets)])
    expected = [len(sets[i] & sets[j]) / max(1, len(sets[i] | sets[j])) for i, j in zip(a, b, strict=True)]
    assert jaccard(values, offsets, np.array(a), np.array(b)).tolist() == pytest.approx(expected)


def test_a_record_that_is_there_twice_is_a_pair_with_itself():
    same, other = list(range(32)), list(range(100, 132))
    found = edges(records([same, other, same], ids=["a", "b", "a"]))
    assert list(found) == [("a", "s", "a", "s")]


def test_copies_need_few_edges():
    found = edges(records([list(range(32))] * 1000), MinHash(column="f", rows=16))
    assert len(found) == 3 * 1000 - 6
    assert {other for _, _, other, _ in found} == {f"r{i:05}" for i in range(1, 1000)}


def test_a_crowd_of_unlike_records_is_told(monkeypatch):
    monkeypatch.setattr(pairs, "LEADERS_BYTES", 0)
    rng = np.random.default_rng(1)
    template = rng.integers(0, 2**32, (300, 32), dtype=np.uint32)
    template[:, :2] = 7
    template[299] = template[298]
    shard, = shards_of(records([t.tolist() for t in template]), MEASURE)
    stage = FindPairs(measure=MEASURE)
    stage.setup(Context())
    stage.clear()
    stage.absorb(shard)
    *edges, last = stage.finish()
    found = [row for batch in edges for row in batch.rows.to_pylist()]
    assert [(e["id"], e["other_id"]) for e in found] == [("r00298", "r00299")]
    assert last.counts == {"crowded": 236}
    alarm, = stage.findings("near", Counts(extra=dict(last.counts)))
    assert "near: 236 times" in alarm.text
    assert "so many records unlike it" in alarm.text
    stage.clear()
    assert not list(stage.finish())
    assert not list(stage.findings("near", Counts()))


def test_nothing_is_left_of_what_was_spilled(tmp_path):
    """Neither while it runs, nor when it is killed: the files have no names."""
    code = """
import os, signal
from packs.dedup.tests.test_pairs import FindPairs, MEASURE, near_copies, np, records, shards_of
shard, = shards_of(records(near_copies(np.random.default_rng(0), 50)), MEASURE)
stage = FindPairs(measure=MEASURE, memory_bytes=1)
stage.clear()
stage.absorb(shard)
assert stage._store.nbytes == 0
held = [f"/proc/self/fd/{n}" for n in os.listdir("/proc/self/fd")]
files = sum("(deleted)" in os.readlink(link) for link in held if os.path.islink(link))
print(files, os.listdir(os.environ["TMPDIR"]), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    files, listed = done.stdout.split(" ", 1)
    assert int(files) >= 8
    assert listed.strip() == "[]"
    assert os.listdir(tmp_path) == []


def test_what_was_spilled_is_forgotten():
    stage = FindPairs(measure=MEASURE, memory_bytes=1)
    rng = np.random.default_rng(0)
    for signatures in (near_copies(rng, 20), near_copies(rng, 20)):
        stage.clear()
        rows = records(signatures)
        stage.absorb(shards_of(rows, MEASURE)[0])
        got = {(e["id"], e["other_id"]) for batch in stage.finish() for e in batch.rows.to_pylist()}
        assert got == {(a, b) for a, _, b, _ in edges(rows)}
        assert got
    stage.close()


def test_fingerprints_of_different_widths_cannot_be_compared():
    stage = FindPairs(measure=MinHash(column="f", rows=2))
    stage.clear()
    stage.absorb(shards_of(records([[1, 2, 3, 4]] * 3), MinHash(column="f", rows=2))[0])
    with pytest.raises(ValueError, match="sketches of 4, 6 bytes"):
        stage.absorb(shards_of(records([[1, 2, 3, 4, 5, 6]] * 3), MinHash(column="f", rows=2))[0])


@pytest.mark.parametrize("exact", [False, True])
def test_it_keeps_the_rules(exact):
    _, signatures = shingled(np.random.default_rng(3), 3)
    rows = records(signatures, shingles=pa.array(signatures, pa.list_(pa.uint32())))
    shard, = shards_of(rows, MEASURE, shingles="shingles" if exact else None)
    assert isinstance(shard, SketchBatch)
    check_stage(FindPairs(measure=MEASURE, exact=exact), shard, skip={"nulls"})  # `Sketch` makes none


def test_a_shard_without_rows_has_no_edges():
    stage = FindPairs(measure=MEASURE)
    stage.clear()
    assert list(stage.finish()) == []


def test_what_it_makes_has_the_columns_of_edges():
    shard, = shards_of(records([list(range(32))] * 3), MEASURE)
    made = run_stage(FindPairs(measure=MEASURE), shard)["out"]
    assert made.rows.schema.equals(EDGE)


@pytest.mark.parametrize("make", [lambda: FindPairs(measure=Hamming("f", 3), exact=True),
                                  lambda: FindPairs(measure=MEASURE, shards=0)])
def test_nonsense_is_refused(make):
    with pytest.raises(RecipeError):
        make()
