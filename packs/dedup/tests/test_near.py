"""Near duplicates from files to files: what is kept, what is not, and that nothing else matters."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from curator_dedup import DedupNear

from curator import RecipeError
from curator.front import from_source, load
from curator.stages import Parquet, ToParquet
from packs.dedup.tests.corpus import corpus, jaccard, write


def run(folder, out, workers=0, **parameters):
    made = from_source(Parquet(path=str(folder / "*.parquet"))) >> DedupNear(**parameters) >> ToParquet(path=str(out))
    result = made.run(workers=workers)
    assert result.ok
    assert [a["text"] for a in result.stats["alarms"] if "bug in Curator" in a["text"]] == []
    return result


def written(out):
    return {r["id"]: r for p in Path(out, "data").glob("*.parquet") for r in pq.read_table(p).to_pylist()}


def duplicates(out, stage="dedup.near"):
    folder = Path(out) / "duplicate" / stage
    return {r["id"]: r for p in folder.glob("*.parquet") for r in pq.read_table(p).to_pylist()} if folder.exists() else {}


def outcome(out):
    return sorted(written(out)), {
        i: (r["duplicate_of"], round(r["similarity"], 4), r["cluster"]) for i, r in duplicates(out).items()}


@pytest.fixture(scope="module")
def rows():
    return corpus()


@pytest.fixture(scope="module")
def files(rows, tmp_path_factory):
    return write(rows, tmp_path_factory.mktemp("in"))


@pytest.fixture(scope="module")
def usual(files, tmp_path_factory):
    out = tmp_path_factory.mktemp("usual")
    run(files, out)
    return outcome(out)


def test_one_of_each_family_stays_and_the_others_name_it(rows, files, tmp_path):
    result = run(files, tmp_path / "out")
    stay, gone = written(tmp_path / "out"), duplicates(tmp_path / "out")
    by_id = {r["id"]: r for r in rows}
    assert set(stay) | set(gone) == set(by_id)
    assert len(stay) + len(gone) == len(rows)
    assert sorted(by_id[i]["family"] for i in stay) == list(range(70))
    for i, row in gone.items():
        assert row["duplicate_of"] in stay
        assert abs(row["similarity"] - jaccard(by_id[i]["text"], by_id[row["duplicate_of"]]["text"])) < 0.25
        assert row["similarity"] >= 0.8
    assert set(next(iter(stay.values()))) == {"id", "source", "text", "family", "quality", "lang", "minhash"}
    stage = next(s for s in result.stats["stages"] if s["name"] == "dedup.near")
    assert (stage["in"], stage["out"]["out"], stage["duplicate"], stage["made"]) == (len(rows), 70, len(rows) - 70, 0)
    assert sum(stage["columns"]["cluster_sizes"]["values"].values()) == len(gone) + 30
    clusters = pq.read_table(tmp_path / "out" / "clusters" / "dedup.near").to_pylist()
    assert {c["id"] for c in clusters if c["duplicate_of"] is None} == {r["duplicate_of"] for r in gone.values()}


@pytest.mark.parametrize(("workers", "shards"), [
    (2, 3), *(pytest.param(*case, marks=pytest.mark.slow) for case in [(1, 16), (3, 1), (8, 16)])])
def test_workers_and_shards_make_no_difference(files, usual, tmp_path, workers, shards):
    run(files, tmp_path / "out", workers=workers, shards=shards)
    assert outcome(tmp_path / "out") == usual


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
def test_the_order_of_the_input_makes_no_difference(rows, usual, tmp_path, seed):
    shuffled = random.Random(seed).sample(rows, len(rows))
    folder = write(shuffled, tmp_path / "in", files=seed)
    run(folder, tmp_path / "out", workers=2)
    assert sorted(written(tmp_path / "out")) == usual[0]
    assert {i: d[:2] for i, d in outcome(tmp_path / "out")[1].items()} == {i: d[:2] for i, d in usual[1].items()}


def test_the_best_stays(rows, files, tmp_path):
    run(files, tmp_path / "out", keep={"by": "quality", "order": "desc"})
    best = {}
    for row in rows:
        best[row["family"]] = max(best.get(row["family"], 0), row["quality"])
    assert sorted(r["quality"] for r in written(tmp_path / "out").values()) == sorted(best.values())


def test_none_stays_of_those_that_are_alike(rows, files, tmp_path):
    run(files, tmp_path / "out", keep="none")
    assert sorted(r["family"] for r in written(tmp_path / "out").values()) == list(range(30, 70))


def test_who_stays_tells_how_many_were_alike(rows, files, tmp_path):
    run(files, tmp_path / "out", copies="copies", shards=3)
    sizes = Counter(row["family"] for row in rows)
    stay = written(tmp_path / "out").values()
    assert {row["family"]: row["copies"] for row in stay} == sizes
    assert max(sizes.values()) > 2
    with pytest.raises(RecipeError, match="copies needs all records"):
        DedupNear(copies="copies", mode="stream")


def test_records_meet_within_their_scope_only(rows, files, tmp_path):
    run(files, tmp_path / "out", scope="lang")
    assert sorted((r["family"], r["lang"]) for r in written(tmp_path / "out").values()) == sorted(
        {(r["family"], r["lang"]) for r in rows})


def test_a_reference_is_never_removed_and_what_is_like_it_goes(rows, files, tmp_path):
    run(files, tmp_path / "out", reference="lang = 'de'", keep="longest")
    stay = written(tmp_path / "out").values()
    german = [r["id"] for r in rows if r["lang"] == "de"]
    assert set(german) <= {r["id"] for r in stay}
    families = {r["family"] for r in rows if r["lang"] == "de"}
    assert not [r for r in stay if r["lang"] == "en" and r["family"] in families]


def test_records_that_share_their_id_are_not_mixed_up(tmp_path):
    """Two with one id and another text each stay; of two that are the same in everything one stays."""
    texts = [" ".join(f"{name}{n}" for n in range(50)) for name in "abc"]
    rows = [{"id": "same", "source": "s", "text": t} for t in (texts[0], texts[1], texts[0], texts[0])]
    rows += [{"id": "other", "source": "s", "text": texts[1]}, {"id": "alone", "source": "s", "text": texts[2]},
             {"id": "empty", "source": "s", "text": ""}]
    run(write(rows, tmp_path / "in", files=1), tmp_path / "out")
    texts_kept = sorted(r["text"] for p in (tmp_path / "out/data").glob("*.parquet") for r in pq.read_table(p).to_pylist())
    assert texts_kept == sorted(["", *texts])


def test_a_reference_stays_as_often_as_it_is_there(tmp_path):
    text = " ".join(f"a{n}" for n in range(50))
    rows = [{"id": "same", "source": "s", "text": text, "lang": "de"}] * 3
    rows += [{"id": "x", "source": "s", "text": text, "lang": "en"}]
    run(write(rows, tmp_path / "in", files=1), tmp_path / "out", reference="lang = 'de'")
    assert [r["id"] for p in (tmp_path / "out/data").glob("*.parquet") for r in pq.read_table(p).to_pylist()] == ["same"] * 3


def test_bit_hashes_are_compared_by_distance(tmp_path):
    rng = random.Random(3)
    rows, pictures = [], 40
    for picture in range(pictures):
        bits = rng.getrandbits(64)
        for copy in range(3):
            flipped = sum(1 << b for b in rng.sample(range(64), rng.randint(0, 2) if copy else 0))
            rows.append({"id": f"{picture}-{copy}", "picture": picture, "phash": bits ^ flipped})
    rng.shuffle(rows)
    pq.write_table(pa.table({"id": [r["id"] for r in rows], "picture": [r["picture"] for r in rows],
                             "phash": pa.array([r["phash"] for r in rows], pa.uint64())}), tmp_path / "a.parquet")
    run(tmp_path, tmp_path / "out", column="phash", distance=4)
    assert sorted(r["picture"] for r in written(tmp_path / "out").values()) == list(range(pictures))


@pytest.mark.parametrize("mode", ["cluster", "stream"])
def test_lists_of_hashes_are_compared_by_the_nearest(tmp_path, mode):
    rng = random.Random(4)
    rows, pictures = [], 30
    for picture in range(pictures):
        views = [rng.getrandbits(64) for _ in range(4)]
        for _ in range(3):  # each has the first view and some others, in any order, a few bits away
            some = rng.sample([views[0], *rng.sample(views[1:], size := rng.randint(0, 3))], 1 + size)
            flipped = [view ^ sum(1 << b for b in rng.sample(range(64), rng.randint(0, 2))) for view in some]
            rows.append({"picture": picture, "phash": flipped})
    rows += [{"picture": pictures + number, "phash": nothing} for number, nothing in enumerate([[], None, [None]])]
    rng.shuffle(rows)
    table = pa.Table.from_pylist(rows, pa.schema({"picture": pa.int64(), "phash": pa.list_(pa.uint64())}))
    pq.write_table(table.append_column("id", [[f"r{n:02}" for n in range(len(rows))]]), tmp_path / "a.parquet")
    run(tmp_path, tmp_path / "out", column="phash", distance=4, hashes=4, mode=mode)
    assert sorted(r["picture"] for r in written(tmp_path / "out").values()) == list(range(pictures + 3))


def test_a_recipe_names_what_is_wrong(tmp_path, files):
    text = "read: {{parquet: {{path: {}}}}}\nsteps:\n  - dedup.near: {}\nwrite: {{parquet: {{path: {}}}}}\n"
    for parameters, said in (("{column: minhsh}", "minhsh"), ("{treshold: 0.8}", "threshold"), ("{keep: longst}", "longest"),
                             ("{radius: 0}", "radius"), ("{column: text}", "text"), ("{threshold: 1.5}", "threshold"),
                             ("{hashes: 8}", "distance"), ("{shingles: words}", "only verify: exact reads shingles"),
                             ("{distance: 4, threshold: 2}", "threshold does not apply, as bit hashes are compared by distance"),
                             ("{distance: 4, rows: 3}", "rows does not apply"), ("{distance: 4, verify: exact}", "verify does not apply")):
        recipe = tmp_path / "recipe.yaml"
        recipe.write_text(text.format(files / "*.parquet", parameters, tmp_path / "out"))
        with pytest.raises(RecipeError, match=said):
            load(str(recipe)).run(workers=0)


def test_a_cluster_or_a_source_that_loses_much_is_told(tmp_path):
    rows = corpus(seed=8, families=2, alone=60)
    template = " ".join(f"t{n}" for n in range(50))
    rows += [{"id": f"t{n:02}", "source": "s", "text": template, "family": -1, "quality": 0.0, "lang": "en"} for n in range(30)]
    result = run(write(rows, tmp_path / "in", files=2), tmp_path / "out")
    told = [a["text"] for a in result.stats["alarms"] if a["stage"] == "dedup.near"]
    assert any("One cluster of stage dedup.near has 30 of" in text for text in told)
    assert not any("of source" in text for text in told)  # a third of each file, which is less than half
    result = run(tmp_path / "in", tmp_path / "strict", alarm_above={"cluster": 0.5, "source": 0.1})
    told = [a["text"] for a in result.stats["alarms"] if a["stage"] == "dedup.near"]
    assert ["and over 10.0% of those of 1 more source" in text for text in told if "records of source" in text] == [True]
    assert not any("One cluster" in text for text in told)


SCRIPT = """
import sys
from curator.front import from_source
from curator.stages import Parquet, ToParquet
from curator_dedup import DedupNear
if __name__ == "__main__":
    made = from_source(Parquet(path=sys.argv[1] + "/*.parquet")) >> DedupNear() >> ToParquet(path=sys.argv[2])
    made.run(workers=2)
"""


@pytest.mark.parametrize("phase", [3, *(pytest.param(phase, marks=pytest.mark.slow) for phase in (2, 4))])
def test_a_run_that_was_killed_goes_on_to_the_same_survivors(files, usual, tmp_path, phase):
    (tmp_path / "go.py").write_text(SCRIPT)
    out = tmp_path / "out"
    killed = subprocess.Popen([sys.executable, str(tmp_path / "go.py"), str(files), str(out)], start_new_session=True,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    ledger = out / "_run" / ("ledger" if phase == 2 else f"ledger-{phase - 1}")
    while not (ledger.exists() and list(ledger.iterdir())) and killed.poll() is None and time.monotonic() < until:
        time.sleep(0.001)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    run(files, out, workers=2)
    assert outcome(out) == usual
