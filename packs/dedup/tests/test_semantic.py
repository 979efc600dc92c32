"""Records whose embeddings point the same way, from files to files: one of each planted group is kept."""

import math
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from curator_dedup import DedupSemantic

from curator import RecipeError, Resources, read, write
from curator.front import load
from packs.dedup.tests.vectors import directions, turned

WIDTH = 32


def planted(random, singles=150, groups=40, size=3, cosine=0.98, width=WIDTH):
    """Vectors, and the group of each: a group is a vector and others at this cosine to it; a single is a group of its own."""
    best = directions(random, singles + groups, width)
    members = turned(random, np.repeat(best[:groups], size - 1, axis=0), cosine)
    labels = np.concatenate([np.arange(singles + groups), np.repeat(np.arange(groups), size - 1)])
    return np.concatenate([best, members]), labels


def table(vectors, kind=pa.float32(), **columns):
    count = len(vectors)
    lists = pa.array([None if v is None else list(map(kind.to_pandas_dtype(), v)) for v in vectors], pa.list_(kind))
    return pa.table({"id": [f"r{n:05}" for n in range(count)], "embedding": lists} | columns)


def deduplicated(folder, rows, files=3, workers=0, **options):
    """Ids that were written, and the rows on `duplicate` by id."""
    folder.mkdir(parents=True, exist_ok=True)
    for n in range(files):
        start, stop = n * len(rows) // files, (n + 1) * len(rows) // files
        pq.write_table(rows.slice(start, stop - start), folder / f"{n}.parquet")
    out = folder / "out"
    pipeline = read(str(folder / "*.parquet")) >> DedupSemantic(**options) >> write(str(out), format="parquet")
    result = pipeline.run(workers=workers)
    assert not [alarm for alarm in result.stats["alarms"] if alarm["level"] == "error"]
    kept = [i for path in (out / "data").glob("*.parquet") for i in pq.read_table(path).column("id").to_pylist()]
    gone = [row for path in out.glob("duplicate/**/*.parquet") for row in pq.read_table(path).to_pylist()]
    assert len(kept) + len(gone) == len(rows)
    return sorted(kept), {row["id"]: row for row in gone}


def names(numbers):
    return [f"r{n:05}" for n in numbers]


@pytest.mark.parametrize("options", [{}, {"clusters": 12}, {"method": "neighbours"}, {"clusters": 500, "probes": 4}])
@pytest.mark.parametrize(("width", "kind"), [(WIDTH, pa.float32()), (300, pa.float64()), (64, pa.float16())])
def test_one_of_each_planted_group_is_kept_and_the_others_name_it(tmp_path, options, width, kind):
    vectors, labels = planted(np.random.default_rng(1), width=width, cosine=0.99)
    kept, gone = deduplicated(tmp_path, table(vectors, kind), **options)
    assert kept == names(range(190))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    for name, row in gone.items():
        one, other = int(name[1:]), int(row["duplicate_of"][1:])
        assert labels[one] == labels[other]
        assert row["similarity"] == pytest.approx(unit[one] @ unit[other], abs=2e-3)
    assert {labels[int(name[1:])] for name in gone} == set(range(40))


def found(folder, cosines, **options):
    """The share of planted pairs, at these cosines, that are found among vectors that have nothing else in common."""
    random = np.random.default_rng(2)
    some = directions(random, len(cosines), 128)
    both = np.concatenate([some, turned(random, some, np.asarray(cosines)[:, None])])
    unit = both.astype(np.float32).astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    alike = np.triu(unit @ unit.T >= 0.95, 1)
    _, gone = deduplicated(folder, table(both), **options)
    pairs = {(int(row["duplicate_of"][1:]), int(name[1:])) for name, row in gone.items()}
    assert pairs <= set(zip(*(n.tolist() for n in np.nonzero(alike)), strict=True))
    return len(pairs) / alike.sum()


def test_neighbours_find_99_percent_of_the_pairs_that_brute_force_finds(tmp_path):
    assert found(tmp_path, np.linspace(0.9502, 0.9998, 800), method="neighbours") >= 0.99


@pytest.mark.slow
def test_more_probes_find_more_of_the_pairs(tmp_path):
    """Vectors without any structure are the worst there is for k-means: where a cluster ends, nothing else does."""
    one, two, four = (found(tmp_path / str(n), np.full(800, 0.9502), clusters=30, probes=n) for n in (1, 2, 4))
    assert 0.5 < one < two < four
    assert two >= 0.9
    assert four >= 0.99


@pytest.mark.parametrize("options", [{"clusters": 8}, pytest.param({"method": "neighbours"}, marks=pytest.mark.slow)])
def test_neither_order_nor_files_nor_workers_nor_shards_matter(tmp_path, options):
    random = np.random.default_rng(3)
    vectors = np.concatenate([planted(random, singles=60, groups=20, size=4, cosine=0.974)[0], directions(random, 30, WIDTH)])
    rows = table(vectors)
    kept, gone = deduplicated(tmp_path / "a", rows, **options)
    assert gone
    mixed = rows.take(pa.array(random.permutation(len(rows))))
    for n, changes in enumerate([{"files": 1, "shards": 1}, {"files": 4, "shards": 7, "workers": 2}]):
        replay, others = deduplicated(tmp_path / str(n), mixed, **options, **changes)
        assert replay == kept
        assert {i: (row["duplicate_of"], row["similarity"]) for i, row in others.items()} == {
            i: (row["duplicate_of"], row["similarity"]) for i, row in gone.items()}


@pytest.mark.parametrize("method", ["kmeans", "neighbours"])
def test_records_without_a_direction_are_kept(tmp_path, method):
    values = [[1.0, 0, 0], None, [0.0, 0, 0], [math.nan, 1, 2], [math.inf, 0, 0], [2.0, 0, 0], None, [0.0, 0, 0], []]
    _, gone = deduplicated(tmp_path, table(values), method=method)
    assert list(gone) == names([5])
    assert gone["r00005"]["duplicate_of"] == "r00000"
    assert gone["r00005"]["similarity"] == 1


def test_no_vectors_at_all_are_fine(tmp_path):
    assert deduplicated(tmp_path, table([None, None]))[0] == names([0, 1])


@pytest.mark.parametrize("method", ["kmeans", "neighbours"])
def test_vectors_of_two_widths_stop_the_run_and_say_so(tmp_path, method):
    rows = table([[1.0, 0.0]] * 10)
    pq.write_table(rows, tmp_path / "a.parquet")
    pq.write_table(table([[1.0, 0.0, 0.0]] * 10), tmp_path / "b.parquet")
    pipeline = read(str(tmp_path / "*.parquet")) >> DedupSemantic(method=method) >> write(str(tmp_path / "out"))
    result = pipeline.run(workers=0, check=False)
    assert not result.ok
    assert re.search("must all have one width|must be equally long", result.stats["message"])


def test_hard_keeps_the_farthest_from_the_center_and_easy_the_nearest(tmp_path):
    vectors, _ = planted(np.random.default_rng(4), singles=50, groups=60, size=2)
    hard, easy, other, replay = (set(deduplicated(tmp_path / f"{n}", table(vectors), clusters=5, keep=keep, seed=seed)[0])
                                for n, (keep, seed) in enumerate([("hard", 1), ("easy", 1), ("random", 1), ("random", 2)]))
    assert hard & easy == set(names(range(60, 110)))
    assert len(hard | easy) == 170
    assert other != replay
    assert len(other) == len(replay) == 110


def test_the_best_is_kept(tmp_path):
    vectors, labels = planted(np.random.default_rng(5), singles=5, groups=10, size=3)
    score = np.random.default_rng(5).permutation(len(vectors)).astype(float)
    kept, _ = deduplicated(tmp_path / "a", table(vectors, score=score), keep={"by": "score"})
    best = {label: max(np.flatnonzero(labels == label), key=lambda n: score[n]) for label in range(10)}
    assert [n for n in kept if labels[int(n[1:])] < 10] == sorted(names(best.values()))
    assert deduplicated(tmp_path / "b", table(vectors), keep="none")[0] == names(range(10, 15))


def test_a_scope_keeps_others_apart_and_a_reference_is_never_removed(tmp_path):
    vectors = np.concatenate([np.tile([[1.0, 0.0]], (4, 1)), [[0.0, 1.0]]])
    rows = table(vectors, language=["de", "en", "de", "en", "de"])
    for method in ("kmeans", "neighbours"):
        kept, gone = deduplicated(tmp_path / method / "a", rows, scope="language", method=method)
        assert {name: row["duplicate_of"] for name, row in gone.items()} == {"r00002": "r00000", "r00003": "r00001"}
        kept, gone = deduplicated(tmp_path / method / "b", rows, reference="language = 'en'", method=method)
        assert kept == names([1, 3, 4])
        assert {row["duplicate_of"] for row in gone.values()} == {"r00001"}


def test_a_chain_is_cut_at_the_radius(tmp_path):
    angles = np.arange(5) * math.acos(0.96)
    rows = table(np.column_stack([np.cos(angles), np.sin(angles)]))
    assert deduplicated(tmp_path / "1", rows)[0] == names([0, 2, 4])
    assert deduplicated(tmp_path / "2", rows, radius=2)[0] == names([0, 3])
    assert deduplicated(tmp_path / "3", rows, radius=None)[0] == names([0])


def test_a_group_that_is_bigger_than_any_bucket_of_pairs_is_one(tmp_path):
    random = np.random.default_rng(6)
    center = directions(random, 1, 64)
    vectors = np.concatenate([center, turned(random, np.repeat(center, 1500, axis=0), 0.99), directions(random, 200, 64)])
    kept, gone = deduplicated(tmp_path, table(vectors), files=1)
    assert kept == names([0, *range(1501, 1701)])
    assert {row["duplicate_of"] for row in gone.values()} == {"r00000"}


def test_eps_is_what_is_missing_to_one(tmp_path):
    random = np.random.default_rng(8)
    some = directions(random, 40)
    rows = table(np.concatenate([some, turned(random, some, 0.9)]))
    assert len(deduplicated(tmp_path / "a", rows, eps=0.11)[0]) == 40
    assert len(deduplicated(tmp_path / "b", rows, eps=0.09)[0]) == 80
    assert DedupSemantic(eps=0.05)._least() == DedupSemantic()._least() == 0.95


def test_what_multiplies_matrices_gets_the_resources_of_the_whole():
    gpu = Resources(cpus=2, gpus=1)
    sketch, centroids, pairs, clusters, split = DedupSemantic().with_(resources=gpu)._parts()
    assert centroids.resources == pairs.resources == gpu
    assert not any(part.resources.gpus for part in (sketch, clusters, split))


@pytest.mark.parametrize("workers", [0, 2])
def test_in_mode_stream_the_first_to_arrive_stays(tmp_path, workers):
    vectors, labels = planted(np.random.default_rng(7), cosine=0.99)
    mixed = np.random.default_rng(7).permutation(len(vectors))
    rows = table([None, *vectors[mixed], [0.0] * WIDTH], language=["de"] * (len(vectors) + 2))
    labels = np.concatenate([[-1], labels[mixed], [-2]])
    kept, gone = deduplicated(tmp_path / "a", rows, mode="stream", workers=workers, scope="language")
    assert sorted(labels[int(name[1:])] for name in kept) == sorted({*labels})
    assert all(row["duplicate_of"] in kept and row["similarity"] >= 0.95 for row in gone.values())
    assert all(labels[int(name[1:])] == labels[int(row["duplicate_of"][1:])] for name, row in gone.items())
    if workers == 0:
        assert all(row["duplicate_of"] < name for name, row in gone.items())
        other = table(vectors[mixed], language=[f"{n}" for n in range(len(vectors))])
        assert not deduplicated(tmp_path / "b", other, mode="stream", scope="language")[1]


def test_vectors_of_two_widths_in_mode_stream_stop_the_run_and_say_so(tmp_path):
    pq.write_table(table([[1.0, 0.0]] * 10), tmp_path / "a.parquet")
    pq.write_table(table([[1.0, 0.0, 0.0]] * 10), tmp_path / "b.parquet")
    pipeline = read(str(tmp_path / "*.parquet")) >> DedupSemantic(mode="stream") >> write(str(tmp_path / "out"))
    result = pipeline.run(workers=0, check=False)
    assert not result.ok
    assert "must all have one width" in result.first_errors[0].error


@pytest.mark.parametrize(("name", "value"), [("keep", "longest"), ("keep", "hard"), ("reference", "true"), ("radius", None),
                                             ("clusters", 10), ("method", "kmeans")])
def test_what_needs_all_records_is_refused_in_mode_stream(name, value):
    with pytest.raises(RecipeError, match=rf"{name}.* needs all records"):
        DedupSemantic(mode="stream", **{name: value})


@pytest.mark.parametrize(("options", "told"), [
    ({"mode": "flow"}, "cluster or stream"),
    ({"threshold": 0.9, "eps": 0.1}, "give one of them"), ({"eps": 1.0}, "eps must be"), ({"threshold": 1.5}, "threshold"),
    ({"method": "faiss"}, "kmeans or neighbours"), ({"method": "neighbours", "keep": "hard"}, "needs method: kmeans"),
    ({"keep": "hardest"}, "keep"), ({"clusters": 0}, "clusters must"), ({"probes": 0}, "probes must"), ({"radius": 0}, "radius"),
    ({"shards": 0}, "shards")])
def test_nonsense_is_refused_before_anything_runs(options, told):
    with pytest.raises(RecipeError, match=told):
        DedupSemantic(**options)


def test_a_column_that_is_not_there_or_holds_no_vectors_is_refused_by_the_plan(tmp_path):
    pq.write_table(table([[1.0, 0.0]], text=["a"]), tmp_path / "a.parquet")
    cases = [("embeding", "embedding", "cluster"), ("text", "wants vectors: 'text' is", "cluster"),
             ("text", "wants vectors: 'text' is", "stream")]
    for column, told, mode in cases:
        pipeline = read(str(tmp_path / "a.parquet")) >> DedupSemantic(column=column, mode=mode) >> write(str(tmp_path / "out"))
        with pytest.raises(RecipeError, match=told):
            pipeline.run(workers=0)


def test_a_recipe_says_it_in_one_line_and_the_clusters_are_beside_the_output(tmp_path):
    vectors, _ = planted(np.random.default_rng(9), singles=10, groups=5, size=3)
    pq.write_table(table(vectors), tmp_path / "a.parquet")
    (tmp_path / "recipe.yaml").write_text(
        f"read: {{parquet: {{path: {tmp_path}/a.parquet}}}}\n"
        "steps:\n  - dedup.semantic: {eps: 0.05, keep: easy, clusters: 3, probes: 1}\n"
        f"write: {{parquet: {{path: {tmp_path}/out}}}}\n")
    result = load(tmp_path / "recipe.yaml").run(workers=0)
    assert result.records["written"] == 15
    assert result.records["duplicate"] == 10
    verdicts = pa.concat_tables([pq.read_table(path) for path in (tmp_path / "out" / "clusters").rglob("*.parquet")])
    assert len(verdicts) == 15
    assert set(verdicts.column("cluster_size").to_pylist()) == {3}
    assert verdicts.column("duplicate_of").null_count == 5
