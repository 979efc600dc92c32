"""What is finished stays finished, and only that: crashes at every write, edits, damaged files, files of others."""

import itertools
import json
import multiprocessing
import os
import random
import re
import time
from dataclasses import replace

import pytest
from curator_dedup import DedupExact

from curator import CuratorError
from curator.api.counts import Counts
from curator.api.stage import SourceRange, Unit, WrittenFile
from curator.engine.events import Commit
from curator.io.files.folder import Folder
from curator.io.files.local import LocalOutput
from curator.pipeline.plan import make_plan
from curator.run.folder.ledger import COMPACT_FILES, Ledger
from curator.stages import Limit
from tests.engine.small_stages import DropWord, DyingSink, FirstOfText, JsonFiles, Shout, kept_aside, lines, words, write_lines, written

CONTENT = {"a": ["same", "x", "bad 1"], "b": ["same", "y", "y"], "c": ["z", "bad 2", "x"], "d": ["same"]}


@pytest.fixture
def texts(tmp_path):
    return write_lines(tmp_path / "in", **CONTENT)


def sink(folder, **options):
    return JsonFiles(path=str(folder), **options)


def pipeline(texts, out, suffix="", word="bad", plain=True, discard=()):
    """Two sinks at two depths, a stateful stage before both, and all endings."""
    unique = lines(texts) >> DropWord(word=word) >> FirstOfText()
    before = unique.to(sink(out / "plain")) if plain else unique
    made = (before >> Shout(suffix=suffix) >> sink(out / "loud")).named("x", out=str(out))
    return replace(made, settings=replace(made.settings, discard=discard))


def everything(out):
    """All that a run wrote, as far as it does not depend on which of equal records came first."""
    duplicates = sorted(row["text"] for row in kept_aside(out, "duplicate"))
    plain, loud = written(out / "plain"), written(out / "loud")
    assert len({row["id"] for row in loud}) == len(loud)
    assert {row["duplicate_of"] for row in kept_aside(out, "duplicate")} <= {row["id"] for row in loud}
    if plain:
        assert [row["id"] for row in plain] == [row["id"] for row in loud]
    dropped = [row["text"] for row in kept_aside(out, "dropped")]
    return {"plain": sorted(r["text"] for r in plain), "loud": sorted(r["loud"] for r in loud), "duplicates": duplicates,
            "dropped": sorted(dropped)}


def files(out):
    """Files of records; of sidecars one that was replaced may stay until the next attempt begins."""
    return sorted(str(p.relative_to(out)) for p in out.rglob("*part-*") if "_run" not in p.parts)


# -- crashes ------------------------------------------------------------------------------------------------------


def crash_at(monkeypatch_to, number):
    """From now on, the process ends just before (even numbers) or just after (odd) its n-th change of the disk."""
    seen = itertools.count()

    def dying(change):
        def changed(*args, **kwargs):
            now = 2 * next(seen)
            if now == number:
                os._exit(9)
            try:
                return change(*args, **kwargs)
            finally:  # also behind one that found nothing to change
                if now + 1 == number:
                    os._exit(9)

        return changed

    LocalOutput._commit = dying(LocalOutput._commit)
    os.unlink, os.rename = dying(os.unlink), dying(os.rename)


def run_and_crash(run, number):
    crash_at(None, number)
    run()
    os._exit(0)


def crashes(run, every=1):
    """Run until it ends by itself, dying at the 1st, 2nd, … change of the disk, or at each `every`th; gives at how many.

    Each try dies a little later than the one before, so that every change is a place of death at least once.
    """
    for number in itertools.count(0, every):
        child = multiprocessing.get_context("fork").Process(target=run_and_crash, args=(run, number))
        child.start()
        child.join(60)
        assert child.exitcode in (0, 9), child.exitcode
        if child.exitcode == 0:
            return number


@pytest.fixture(params=[pytest.param(False, marks=pytest.mark.slow), True], ids=["", "merges"])
def merges(request, monkeypatch):
    """With or without: every unit is a file of the ledger, and every two such files are made one."""
    if request.param:
        monkeypatch.setattr("curator.run.loop.LEDGER_S", 0.0)
        monkeypatch.setattr("curator.run.loop.LEDGER_SHARE", 0.0)
        monkeypatch.setattr("curator.run.folder.ledger_files.MERGE", 2)
    return request.param


def test_a_run_may_die_at_every_change_of_the_disk(tmp_path, texts, merges):
    """Each attempt continues what the one before left; each dies at another place."""
    pipeline(texts, tmp_path / "calm").run(workers=0, replace=True)
    ledger = sorted(p.name for p in (tmp_path / "calm/_run/ledger").iterdir())
    assert merges == (len(ledger) <= 2 and ledger[-1] > "00000006")
    assert crashes(lambda: pipeline(texts, tmp_path / "out").run(workers=0, replace=True)) > 20
    result = pipeline(texts, tmp_path / "out").run(workers=0, replace=True)
    assert everything(tmp_path / "out") == everything(tmp_path / "calm")
    assert result.records["in"] == 10
    assert result.stats["units"]["skipped"] == 4


def test_a_card_that_a_killed_run_had_half_written_is_removed_by_the_next(tmp_path, texts):
    def run():
        return pipeline(texts, tmp_path / "out").run(workers=0, replace=True)

    def die_in_the_card():
        commit = LocalOutput._commit
        LocalOutput._commit = lambda file: os._exit(9) if file.uri.endswith("/README.md") else commit(file)
        run()

    child = multiprocessing.get_context("fork").Process(target=die_in_the_card)
    child.start()
    child.join(60)
    assert child.exitcode == 9
    assert [path.name[:15] for path in tmp_path.rglob(".tmp-*")] == [".tmp-README.md."]
    mine = tmp_path / "out/.tmp-README.md.0123abcd"
    mine.write_text("somebody's")
    assert run().ok
    assert (tmp_path / "out/README.md").read_text().startswith("---")
    assert list(tmp_path.rglob(".tmp-*")) == [mine]
    assert not (tmp_path / "out/_run/README.md").exists()


def test_an_edit_may_be_interrupted_at_every_change_of_the_disk(tmp_path, texts, merges):
    """From a whole result to that of an edited recipe and changed inputs: never a mixture, nothing of the old is left."""
    pipeline(texts, tmp_path / "out").run(workers=0, replace=True)
    write_lines(texts, a=["same", "x", "new"], e=["e"])
    os.unlink(texts / "d.txt")
    edited = {"suffix": "!", "discard": ("dropped",)}
    pipeline(texts, tmp_path / "calm", **edited).run(workers=0, replace=True)

    assert crashes(lambda: pipeline(texts, tmp_path / "out", **edited).run(workers=0, prune=True, replace=True)) > 20
    assert everything(tmp_path / "out") == everything(tmp_path / "calm")
    assert len(files(tmp_path / "out")) == len(files(tmp_path / "calm"))
    assert not list((tmp_path / "out").rglob("dropped/**/part-*"))


def test_an_edit_that_is_interrupted_again_and_again_keeps_the_survivors(tmp_path, texts):
    """The sidecars outlive any number of attempts that end before the first unit does."""
    pipeline(texts, tmp_path / "out").run(workers=0, replace=True)
    survivors = [row["id"] for row in written(tmp_path / "out/plain")]
    for _ in range(3):
        edited = pipeline(texts, tmp_path / "out", suffix="!")
        broken = replace(edited.sinks[1].stage, fail="write")
        edited.sinks[1].stage.fail = broken.fail
        assert not edited.run(workers=0, check=False, replace=True).ok
    # Other units come first now; what was kept stays kept.
    write_lines(texts, **{"0": ["same", "x", "y", "z"]})
    pipeline(texts, tmp_path / "out", suffix="!").run(workers=0, replace=True)
    assert [row["id"] for row in written(tmp_path / "out/plain")] == survivors
    assert [row["id"] for row in written(tmp_path / "out/loud")] == survivors


# -- edits --------------------------------------------------------------------------------------------------------

EDITS = {
    "a threshold at the beginning": {"word": "same"},
    "a stage at the end": {"suffix": "?"},
    "a sink less": {"plain": False},
    "an ending discarded": {"discard": ("dropped",)},
    "all of it": {"word": "x", "suffix": "!", "plain": False, "discard": ("duplicate",)},
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_after_an_edit_and_after_taking_it_back_all_is_as_if_it_had_always_been_so(tmp_path, texts, edit):
    out = tmp_path / "out"
    first = pipeline(texts, out).run(workers=0, replace=True)
    was, names = everything(out), len(files(out))
    edited = pipeline(texts, out, **edit).run(workers=0, replace=True)
    calm = pipeline(texts, tmp_path / "calm", **edit).run(workers=0, replace=True)
    assert everything(out) == everything(tmp_path / "calm")
    assert edited.records == calm.records
    assert len(files(out)) == len(files(tmp_path / "calm"))
    assert len(edited.stats["files"]) == len(calm.stats["files"])
    back = pipeline(texts, out).run(workers=0, replace=True)
    assert everything(out) == was
    assert back.records == first.records
    assert len(files(out)) == names


def test_a_stage_that_is_renamed_leaves_nothing_under_its_old_name(tmp_path, texts):
    out = tmp_path / "out"
    (lines(texts) >> DropWord() >> sink(out)).run(workers=0, replace=True)
    (lines(texts) >> DropWord().with_(name="other") >> sink(out)).run(workers=0, replace=True)
    assert {p.parent.name for p in (out / "dropped").rglob("part-*")} == {"other"}
    assert len(kept_aside(out, "dropped")) == 2


def test_a_sink_that_moves_takes_its_records_with_it(tmp_path, texts):
    def made(place):
        return (lines(texts) >> words >> sink(tmp_path / place)).named("x", out=str(tmp_path / "out"))

    made("here").run(workers=0, replace=True)
    made("there").run(workers=0, replace=True)
    assert not list((tmp_path / "here").iterdir())
    assert len(written(tmp_path / "there")) == 10


def test_a_limit_is_one_over_all_attempts(tmp_path, texts):
    def made(suffix=""):
        return lines(texts) >> Limit(records=5) >> Shout(suffix=suffix) >> sink(tmp_path / "out")

    for replay in ("", "", "!"):
        result = made(replay).run(workers=0, replace=True)
        assert len(written(tmp_path / "out")) == result.records["written"] == 5
    write_lines(texts, e=["one more"] * 9)
    assert made("!").run(workers=0, replace=True).records["written"] == 5


@pytest.mark.parametrize("workers", [0, 2])
def test_what_a_stopped_run_did_in_units_that_are_not_done_is_unfinished(tmp_path, texts, workers):
    out = tmp_path / "out"
    write_lines(texts, a=["same", "a"], b=["same", "b"], c=["bad 1"], d=["d"])  # whichever is first, a, b and d keep something
    pipeline(texts, out).run(workers=workers)
    stopping = pipeline(texts, out, suffix="!")
    stopping.sinks[1].stage.fail = "write"
    stopped = stopping.run(workers=workers, check=False, replace=True)
    assert stopped.stats["status"] == "stopped"
    assert stopped.stats["units"]["done"] <= 1  # that of which nothing reaches the broken sink: c
    ended = stopped.records["dropped"] + stopped.records["duplicate"]
    assert 1 <= stopped.records["in"] <= 6
    assert stopped.records["in"] + stopped.records["made"] == ended + stopped.records["unfinished"]
    assert stopped.records["written"] == 0
    finished = pipeline(texts, out, suffix="!").run(workers=workers, replace=True)
    assert finished.records["in"] == 6


def test_a_unit_whose_duplicate_points_to_one_that_is_not_done_is_done_again(tmp_path, texts):
    """b was finished before a, to whose record it points; then the ledger lost a."""
    made = lines(texts) >> DedupExact(column="text") >> sink(tmp_path / "out")
    made.run(workers=0, replace=True)
    ledger = tmp_path / "out/_run/ledger"
    said = [line for path in sorted(ledger.glob("*")) for line in path.read_text().splitlines()]
    for path in ledger.glob("*"):
        path.unlink()
    keeps = [line for line in said if not json.loads(line).get("label", "").endswith("a.txt")]
    (ledger / "00000001.jsonl").write_text("".join(f"{line}\n" for line in keeps))
    result = made.run(workers=0, replace=True)
    kept = {row["id"] for row in written(tmp_path / "out")}
    copies = kept_aside(tmp_path / "out", "duplicate")
    assert {row["duplicate_of"] for row in copies} <= kept
    assert len(kept) + len(copies) == result.records["in"] == 10


# -- damage and strangers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", [b'{"unit": "ab', b"\xff\xfe\x00", b'{"unit": "x"}\n', b"[1, 2]\n", b'{"later": 1}\n'])
def test_a_damaged_ledger_is_named_with_what_to_do(tmp_path, texts, damage):
    made = lines(texts) >> sink(tmp_path / "out")
    made.run(workers=0, replace=True)
    broken = tmp_path / "out/_run/ledger/00000009.jsonl"
    broken.write_bytes(damage)
    with pytest.raises(CuratorError, match=r"00000009.jsonl is damaged.* Remove this file"):
        made.run(workers=0, replace=True)
    broken.unlink()
    assert made.run(workers=0, replace=True).records["written"] == 10


def test_a_ledger_that_is_lost_costs_time_and_no_record(tmp_path, texts):
    made = pipeline(texts, tmp_path / "out")
    made.run(workers=0, replace=True)
    was = everything(tmp_path / "out")
    for path in (tmp_path / "out/_run/ledger").iterdir():
        path.unlink()
    assert pipeline(texts, tmp_path / "out").run(workers=0, replace=True).records["in"] == 10
    assert everything(tmp_path / "out") == was
    assert len([f for f in files(tmp_path / "out") if f.startswith("loud")]) <= 4


def test_only_files_of_this_run_folder_are_ever_removed(tmp_path, texts):
    """A user's files in our folders, another run's output below ours, beside ours and in our folder."""
    out = tmp_path / "out"
    made = [(lines(texts) >> DropWord(word=word) >> sink(out)) for word in ("bad", "x")]
    made[0].run(workers=0)
    (lines(texts) >> sink(out / "inner")).run(workers=0)
    (lines(texts) >> sink(out / "shared")).named("x", out=str(tmp_path / "elsewhere")).run(workers=0)
    for name in ("notes.txt", "data/part-1.json", "data/part-0123456789abcdef-1-0.json", "dropped/mine.parquet", "data/b/mine",
                 "data/part-0123456789abcdef-0123456789abcdef-0-1-0.json"):
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text("mine")
    kept = re.compile(r"/(inner|shared|notes.txt|part-1.json|mine|part-0123456789abcdef)")
    theirs = {p: p.read_bytes() for p in out.rglob("*") if p.is_file() and kept.search(str(p.relative_to(tmp_path)))}
    for one in (made[1], made[0]):
        one.run(workers=0, replace=True)
    assert len(theirs) > 10
    assert {p: p.read_bytes() for p in theirs} == theirs


def test_the_output_of_another_run_inside_the_folder_of_a_sink_is_left_alone_by_it(tmp_path, texts):
    for suffix in ("", "!"):
        (lines(texts) >> Shout(suffix=suffix) >> JsonFiles()).run(out=str(tmp_path / "out"), workers=0, replace=True)
        (lines(texts) >> sink(tmp_path / "out/data/deep")).run(workers=0)
    assert len(written(tmp_path / "out/data/deep")) == len(written(tmp_path / "out")) == 10


def test_what_an_interrupted_attempt_left_is_removed(tmp_path, texts):
    out = tmp_path / "out"
    made = lines(texts) >> sink(out)
    made.run(workers=0, replace=True)
    whole = next((out / "data").glob("part-*"))
    tag = whole.name.split("-")[2]
    data, name = out / "data", f"part-0123456789abcdef-{tag}-0-7-0"
    left = [data / f"{name}.json", data / f".tmp-{name[:-1]}12.json.1234", data / "lang=en" / f"{name}-001.json",
            out / f"failed/x/{name}.parquet", data / f"{name}-000" / "a.jpg", data / f"{name}-000" / "sub" / "b"]
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("half")
    write_lines(texts, e=["e"])
    child = multiprocessing.get_context("fork").Process(target=run_and_crash, args=(lambda: made.run(workers=0), 9))
    child.start()
    child.join(60)
    assert child.exitcode == 9
    assert all(p.exists() for p in left)
    made.run(workers=0, replace=True)
    assert not [p for p in left if p.exists()]
    assert whole.exists()


def test_after_a_run_that_ended_well_nobody_looks_for_what_it_left(tmp_path, texts, monkeypatch):
    looked = []
    remove = Ledger.remove_unnamed
    monkeypatch.setattr(Ledger, "remove_unnamed", lambda self: (looked.append(self.run), remove(self)))
    pipeline(texts, tmp_path / "out").run(workers=0)
    assert looked == [1]
    write_lines(texts, e=["e"])
    for _ in range(2):
        pipeline(texts, tmp_path / "out").run(workers=0)
    assert looked == [1]


@pytest.mark.parametrize("which", ["first", "last"])
def test_whoever_removes_a_file_of_the_ledger_gets_its_units_again_and_nothing_twice(tmp_path, texts, which):
    pipeline(texts, tmp_path / "calm").run(workers=0)
    (texts / "d.txt").rename(tmp_path / "later")
    pipeline(texts, tmp_path / "out").run(workers=0)
    (tmp_path / "later").rename(texts / "d.txt")
    pipeline(texts, tmp_path / "out").run(workers=0)
    found = sorted(path for path in (tmp_path / "out/_run/ledger").iterdir() if '"unit"' in path.read_text())
    assert len(found) == 2
    found[0 if which == "first" else -1].unlink()
    pipeline(texts, tmp_path / "out").run(workers=0)
    assert everything(tmp_path / "out") == everything(tmp_path / "calm")
    assert len(files(tmp_path / "out")) == len(files(tmp_path / "calm"))


def test_paths_of_a_sink_may_be_relative(tmp_path, texts, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = lines(texts) >> JsonFiles(path="out")
    for _ in range(2):
        assert made.run(workers=0, replace=True).records["written"] == 10
        assert len(written(tmp_path / "out")) == 10


def test_attempts_never_share_a_number(tmp_path, texts):
    """Also when the one before died before it finished anything: what it left must not be taken for the next one's."""
    plan = make_plan(lines(texts) >> sink(tmp_path / "out")).phases[0]
    numbers = []
    for _ in range(3):
        ledger = Ledger(Folder.open(str(tmp_path / "out")))
        ledger.prepare(plan, [])
        numbers.append(ledger.run)
    assert numbers == [1, 2, 3]


@pytest.mark.parametrize("after", [False, True], ids=["before its file is there", "after that"])
def test_deaths_of_sinks_leave_only_what_is_named(tmp_path, texts, after):
    marks = tmp_path / "marks"
    marks.mkdir()
    out = tmp_path / "out"
    made = lines(texts) >> FirstOfText() >> DyingSink(path=str(out), marks=str(marks), after=after)
    result = made.run(workers=2)
    assert len(list(marks.iterdir())) == 3
    assert sorted(f["path"] for f in result.stats["files"]) == files(out)
    assert sorted(row["text"] for row in written(out)) == ["bad 1", "bad 2", "same", "x", "y", "z"]


@pytest.mark.parametrize("seed", range(30))
def test_to_rest_on_all_that_a_stage_was_taught_by_is_to_name_each_of_them(tmp_path, texts, seed):
    """Units are lost and vanish: the same ones are done again, and nobody wrote down the square of their number."""
    plan = make_plan(lines(texts) >> Limit(records=5) >> sink(tmp_path / "unused")).phases[0]
    rng, names = random.Random(seed), [s.name for s in plan.steps]
    units = [(0, Unit((SourceRange(uri=f"/in/{i}", size_bytes=9),))) for i in range(20)]
    taught = [i for i in range(20) if rng.random() < 0.4]
    turned_away = [i for i in range(20) if rng.random() < 0.5]
    lost = {i for i in range(20) if rng.random() < 0.05}
    left = [u for u in units if rng.random() < 0.95]
    needs = []
    for kind in ("named", "counted"):
        ledger = Ledger(Folder.open(str(tmp_path / kind)))
        ledger.prepare(plan, units)
        for i, (_, unit) in enumerate(units):
            others = frozenset(taught) - {i} if i in turned_away else frozenset()
            commit = Commit(i, 0, {}, {}, {"limit": f"limit/{ledger.part_name(unit, 0)}.arrow"} if i in taught else {},
                            others if kind == "named" else frozenset(), frozenset(names),
                            {"limit": len(others)} if others and kind == "counted" else {})
            if i not in lost:
                ledger.add(plan, unit, commit, [u for _, u in units])
        ledger.flush(1.0)
        needs.append(Ledger(Folder.open(str(tmp_path / kind))).prepare(plan, left))
    assert needs[0] == needs[1]


# -- size -----------------------------------------------------------------------------------------------------------


def test_thousands_of_units_are_no_burden(tmp_path, texts):
    """CPU time of prepare, commit and flush grows with the number of units and no faster: a resume of 4 times the units
    costs less than 10 times as much, and not 16 times."""
    plan = make_plan(pipeline(texts, tmp_path / "unused")).phases[0]

    def cost(count, turn):
        out = Folder.open(str(tmp_path / f"{count}-{turn}"))
        units = [(0, Unit((SourceRange(uri=f"/in/{i}", size_bytes=9),))) for i in range(count)]
        names = [s.name for s in plan.steps]
        began = time.process_time()
        ledger = Ledger(out)
        ledger.prepare(plan, units)
        for i, (_, unit) in enumerate(units):
            counts = {n: Counts(rows_in=1, out={"out": 1}) for n in names}
            written_files = {n: [WrittenFile(f"{out.uri}/{n}/{ledger.part_name(unit, 0)}.json", 1, 1)] for n in names[-3:]}
            commit = Commit(i, 0, counts, written_files, {}, frozenset({i // 2}), frozenset(names))
            ledger.add(plan, unit, commit, [u for _, u in units])
            ledger.counts()
            if i % (count // 80) == 0:
                ledger.flush(1.0)
        ledger.flush(2.0)
        replay = Ledger(out)
        assert len(replay.files.sizes) <= COMPACT_FILES
        assert replay.prepare(plan, units) == [True] * count
        assert replay.counts()[names[0]].rows_in == count
        return time.process_time() - began

    few, many = (min(cost(count, turn) for turn in range(2)) for count in (400, 1600))  # what else runs here costs time too
    assert many < 10 * few
