"""Checkpoints: after an edit a run starts there, and all is as if the edited recipe had run alone."""

import multiprocessing
import random
import shutil
from functools import partial

import pyarrow as pa
import pytest

from curator import CuratorError, Stage, TextBatch, recipe
from curator.api.errors import ContractError
from curator.pipeline.plan import make_plan
from curator.run.replay import Replay
from curator.stages import Checkpoint, Drop, Limit
from curator.testing import check_stage
from tests.engine.composites import Unlike
from tests.engine.reductions import CountText
from tests.engine.small_stages import (
    DropWord,
    FirstOfText,
    Frames,
    JsonFiles,
    MeanFrame,
    Shout,
    Trouble,
    kept_aside,
    lines,
    write_lines,
    written,
)
from tests.engine.test_ledger import crashes, run_and_crash
from tests.engine.test_phases import sums_up
from tests.marks import soaked_after
from tests.results.fixable import Fixable

CONTENT = {"a": ["same", "x", "bad 1"], "b": ["same", "y", "y"], "c": ["z", "bad 2", "x"], "d": ["bad"], "empty": []}
ALL = (0, 1, 2)  # the checkpoints of `pipeline`


@pytest.fixture
def texts(tmp_path):
    return write_lines(tmp_path / "in", **CONTENT)


def pipeline(texts, out, *, early="none", word="bad", add=0, suffix="", kept=ALL, plain=True):
    """Three places for a checkpoint: behind a stateful stage, before a barrier, and behind it; a sink between the first two."""
    made = lines(texts) >> DropWord(word=early).with_(name="early") >> FirstOfText()
    made = made >> Checkpoint() if 0 in kept else made
    made = made >> DropWord(word=word)
    made = made.to(JsonFiles(path=str(out / "plain"))) if plain else made
    made = made >> Checkpoint(keep=1 in kept) >> CountText(add=add)
    made = made >> Checkpoint() if 2 in kept else made
    return (made >> Shout(suffix=suffix) >> JsonFiles(path=str(out / "loud"))).named("x", out=str(out))


def told(result, out):
    """What a run wrote and counted, as far as it does not depend on which of equal records came first."""
    sums_up(result)
    loud, copies = written(out / "loud"), kept_aside(out, "duplicate")
    assert {row["duplicate_of"] for row in copies}.isdisjoint(row["id"] for row in copies)
    rows = {"loud": [(r["loud"], r["count"]) for r in loud], "plain": [r["text"] for r in written(out / "plain")],
            "dropped": [(r["text"], r["reason"]) for r in kept_aside(out, "dropped")], "copies": [r["text"] for r in copies]}
    funnel = [(s["name"], s["in"], s["made"], s["out"], s["dropped"], s["duplicate"], s["failed"], s["absorbed"])
              for s in result.stats["stages"]]
    names = sorted(str(path.parent.relative_to(out)) for path in out.rglob("part-*") if "_run" not in path.parts)
    return {name: sorted(some) for name, some in rows.items()} | {"funnel": funnel, "records": result.records, "files": names}


def worked(result):
    """The stages that somebody worked on."""
    return [s["name"] for s in result.stats["stages"] if s["workers"]]


def kept_files(out):
    return sorted(str(path.relative_to(out / "_run/checkpoint")) for path in (out / "_run/checkpoint").rglob("part-*"))


# -- what is done again ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_an_edit_behind_a_checkpoint_starts_there_and_the_funnel_shows_the_whole_way(tmp_path, texts, workers):
    out, calm = tmp_path / "out", tmp_path / "calm"
    first = pipeline(texts, out).run(workers=workers)
    assert {c["stage"]: c["rows"] for c in first.stats["checkpoints"]} == {"first_of_text": 7, "drop_word": 4, "count_text": 4}
    seen = told(first, out)
    for edit, behind in (({"suffix": "!"}, ["shout", "json_files-2"]), ({"add": 7}, ["count_text", "shout", "json_files-2"]),
                         ({"word": "z"}, ["drop_word", "json_files", "count_text", "shout", "json_files-2"]),
                         ({"early": "y"}, ["lines", "early", "first_of_text", "drop_word", "json_files", "count_text", "shout",
                                           "json_files-2"])):
        result = pipeline(texts, out, **edit).run(workers=workers, replace=True)
        again = worked(result)
        assert [n for n in again if n != "json_files"] == [n for n in behind if n != "json_files"], edit
        assert told(result, out) == told(pipeline(texts, calm, **edit).run(workers=0, replace=True), calm)
    assert told(pipeline(texts, out).run(workers=0, replace=True), out) == seen


def test_a_checkpoint_changes_no_result_so_it_may_come_and_go(tmp_path, texts):
    out = tmp_path / "out"
    seen = told(pipeline(texts, out, kept=()).run(workers=0), out)
    for kept in (ALL, (0,), (), ALL):
        result = pipeline(texts, out, kept=kept).run(workers=0)  # nobody is asked
        assert worked(result) == []
        assert told(result, out) == seen
        assert not kept_files(out)  # nothing was read that could be kept
    result = pipeline(texts, out, suffix="!").run(workers=0, replace=True)
    assert worked(result) == ["count_text", "shout", "json_files-2"]  # what is spooled for the barrier is there
    pipeline(texts, out, word="z").run(workers=0, replace=True)
    assert {name.split("/")[0] for name in kept_files(out)} == {"first_of_text.out", "drop_word.out", "count_text.out"}
    pipeline(texts, out, word="z", kept=(2,)).run(workers=0)
    assert {name.split("/")[0] for name in kept_files(out)} == {"count_text.out"}


def test_what_is_kept_may_be_deleted_and_is_kept_again(tmp_path, texts):
    out = tmp_path / "out"
    first = told(pipeline(texts, out).run(workers=0), out)
    shutil.rmtree(out / "_run/checkpoint")
    assert worked(pipeline(texts, out).run(workers=0)) == []
    result = pipeline(texts, out, word="z").run(workers=0, replace=True)
    assert "lines" in worked(result)
    (out / "_run/checkpoint" / kept_files(out)[-1]).unlink()  # one of first_of_text.out: that unit alone is read again
    result = pipeline(texts, out).run(workers=0, replace=True)
    assert "lines" in worked(result)
    assert told(result, out) == first
    assert "lines" not in worked(pipeline(texts, out, word="z").run(workers=0, replace=True))


def test_new_and_changed_inputs_beside_an_edit(tmp_path, texts):
    out, calm = tmp_path / "out", tmp_path / "calm"
    pipeline(texts, out).run(workers=0)
    before = set(kept_files(out))
    write_lines(texts, b=["same", "new"], e=["e", "x"])
    result = pipeline(texts, out, word="z").run(workers=0, replace=True)
    assert told(result, out) == told(pipeline(texts, calm, word="z").run(workers=0), calm)
    assert len({n for n in before & set(kept_files(out)) if n.startswith("first")}) >= 2  # of a or c, and d


def test_a_unit_that_others_rest_on_is_done_with_them_as_ever(tmp_path):
    texts = write_lines(tmp_path / "in", a=["same", "only a"], b=["same", "only b"], c=["only c"])
    pipeline(texts, tmp_path / "out").run(workers=0)
    holder = next(row["id"] for row in written(tmp_path / "out/plain") if row["text"] == "same")[0]
    write_lines(texts, **{holder: [f"only {holder}"]})
    result = pipeline(texts, tmp_path / "out", word="c").run(workers=0, replace=True)
    assert told(result, tmp_path / "out") == told(pipeline(texts, tmp_path / "calm", word="c").run(workers=0), tmp_path / "calm")


# -- interruptions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", soaked_after(1, [4, 1]))
def test_an_edit_may_be_interrupted_at_every_change_of_the_disk(tmp_path, texts, every):
    out, calm = tmp_path / "out", tmp_path / "calm"
    pipeline(texts, out, kept=(0, 2)).run(workers=0)
    write_lines(texts, a=["same", "x", "new"], e=["e"])
    seen = told(pipeline(texts, calm, word="z", kept=(0, 2)).run(workers=0), calm)
    assert crashes(lambda: pipeline(texts, out, word="z", kept=(0, 2)).run(workers=0, replace=True), every) > 20
    assert told(pipeline(texts, out, word="z", kept=(0, 2)).run(workers=0), out) == seen
    assert len(kept_files(out)) == len(kept_files(calm))


@pytest.mark.parametrize("seed", soaked_after(4, range(30)))
def test_edits_kills_inputs_and_lost_files_in_any_order(tmp_path, texts, seed):
    """After each step the output is that of a fresh run."""
    rng, out, now, inputs = random.Random(seed), tmp_path / "out", {}, dict(CONTENT)
    for step in range(5):
        what = rng.sample(["edit", "kept", "input", "lose", "kill"], 2)
        if "edit" in what:
            now |= rng.choice([{"early": rng.choice("xyz")}, {"word": rng.choice("xyz")}, {"add": rng.randrange(9)},
                               {"suffix": rng.choice("!?.")}, {"plain": rng.random() < 0.5}])
        if "kept" in what:
            now["kept"] = tuple(n for n in ALL if rng.random() < 0.7)
        if "input" in what:
            inputs[rng.choice("abe")] = [rng.choice(["same", "x", "bad", f"new {step}"]) for _ in range(3)]
            write_lines(texts, **inputs)
        if "lose" in what and (files := kept_files(out)):
            (out / "_run/checkpoint" / rng.choice(files)).unlink()
        if "kill" in what:
            again = partial(pipeline(texts, out, **now).run, workers=0, replace=True)
            child = multiprocessing.get_context("fork").Process(target=run_and_crash, args=(again, rng.randrange(60)))
            child.start()
            child.join(60)
            assert child.exitcode in (0, 9)
        calm = tmp_path / f"calm-{step}"
        assert told(pipeline(texts, out, **now).run(workers=0, replace=True), out) == told(
            pipeline(texts, calm, **now).run(workers=0), calm), (step, what, now)


def test_a_run_from_a_checkpoint_that_stops_early_has_true_numbers_and_judges_failures_by_all_records(tmp_path):
    texts = write_lines(tmp_path / "in", **{f"f{i}": [f"raise {i}", *(f"text {i} {k}" for k in range(400))] for i in range(5)})

    def made(word, fail="", max_failed=0.001):
        checked = lines(texts, batch=100) >> DropWord() >> Checkpoint() >> DropWord(word=word).with_(name="last")
        return (checked >> Trouble() >> JsonFiles(path=str(tmp_path / "out"), fail=fail)).named("x", max_failed=max_failed)

    assert made("399", max_failed=0.01).run(workers=0).records == {"in": 2005, "made": 0, "written": 1995, "dropped": 5,
                                                                   "duplicate": 0, "failed": 5, "absorbed": 0}
    stopped = made("398", fail="write", max_failed=0.01).run(workers=0, check=False, replace=True)
    records = stopped.records
    assert (records["in"], records["written"]) == (2005, 0)
    assert records["unfinished"] == 2005 - records["dropped"] - records["failed"]
    stopped = made("398").run(workers=0, check=False)  # 5 are more than 0.1 % of 2,005
    assert stopped.stats["status"] in ("stopped", "failed")
    assert "of 2005 records failed" in stopped.stats["message"]
    assert made("398", max_failed=0.01).run(workers=0).records["written"] == 1995


# -- where it can stand ----------------------------------------------------------------------------------------------


def test_branches_merges_a_limit_and_near_duplicates_on_both_sides(tmp_path, texts):
    """Two ends are kept under one checkpoint; an edit behind it reads both, and one on a way around it starts at the source."""
    def made(out, long="length(text) > 4", suffix="", aside="!"):
        routed = (lines(texts) >> Limit(records=9) >> Shout()).route({"long": "length(text) > 4", "short": "length(text) <= 4"})
        both = (routed["long"] + (routed["short"] >> Shout(suffix="s").with_(name="louder"))) >> Checkpoint()
        branch = routed["short"] >> Shout(suffix=aside).with_(name="aside") >> JsonFiles(path=str(out / "plain"))
        end = both >> Drop(conditions={"long": long}) >> Unlike() >> Shout(suffix=suffix).with_(name="end")
        return ((end >> JsonFiles(path=str(out / "loud"))) + branch).named("x", out=str(out))

    def seen(result, out):
        sums_up(result)
        return (sorted(r["loud"] for r in written(out / "loud")), sorted(r["loud"] for r in written(out / "plain")),
                result.records)

    out = tmp_path / "out"
    made(out).run(workers=0)
    for edit, reads in (({"long": "length(text) < 2"}, False), ({"suffix": "!"}, False), ({"aside": "?"}, True)):
        result = made(out, **edit).run(workers=0, replace=True)
        assert ("lines" in worked(result)) == reads, edit
        assert seen(result, out) == seen(made(tmp_path / "calm", **edit).run(workers=0, replace=True), tmp_path / "calm")


@pytest.mark.parametrize("mode", ["stream", "batch"])
def test_in_either_mode_and_from_one_to_the_other(tmp_path, texts, mode):
    out, calm = tmp_path / "out", tmp_path / "calm"
    pipeline(texts, out).run(workers=0, mode=mode)
    seen = told(pipeline(texts, calm, word="z").run(workers=0), calm)
    for again in ("batch", "stream"):
        found = told(pipeline(texts, out, word="z").run(workers=0, mode=again, replace=True), out)
        assert found | {"files": seen["files"]} == seen  # of other units, since these are of spools


def test_decoded_frames_end_at_a_checkpoint_and_who_needs_them_behind_is_told_before_the_run(tmp_path, texts):
    made = lines(texts) >> Frames() >> Checkpoint() >> MeanFrame() >> JsonFiles(path=str(tmp_path / "out"))
    with pytest.raises(ContractError, match=r"'mean_frame' needs 'frames', and a checkpoint before it keeps no decoded images.*behind"):
        make_plan(made)
    made = lines(texts) >> Frames() >> MeanFrame() >> Checkpoint() >> Shout() >> JsonFiles(path=str(tmp_path / "out"))
    made.run(workers=0)
    assert sum(path.stat().st_size for path in (tmp_path / "out/_run/checkpoint").rglob("part-*")) < 50_000


def test_in_a_recipe_it_is_a_step_that_a_setting_turns_off(tmp_path, texts):
    (tmp_path / "in.jsonl").write_text('{"text": "a b"}\n{"text": "c"}\n')
    text = f"""
        read: {{jsonl: {{path: {tmp_path / "in.jsonl"}}}}}
        steps: [checkpoint, drop: {{short: length(text) < 2}}, checkpoint: {{keep: false}}]
        write: jsonl
        out: {tmp_path / "out"}"""
    made = recipe.load(text)
    keys = [step.key for step in make_plan(made).steps]
    assert [s.name for p in make_plan(made).phases for s in p.steps if s.checkpoint] == ["checkpoint/jsonl.out"]
    assert recipe.dump(recipe.load(recipe.dump(made))) == recipe.dump(made)
    off = recipe.load(text, {"steps[0].keep": "false"})
    assert not [s for p in make_plan(off).phases for s in p.steps if s.checkpoint]
    assert [step.key for step in make_plan(off).steps] == keys


@pytest.mark.parametrize("late", [False, True], ids=["", "added after the run"])
def test_records_that_ran_again_are_kept_with_the_others_or_not_at_all(tmp_path, texts, late):
    out = tmp_path / "out"

    def made(kept, suffix=""):
        checked = lines(texts) >> Fixable(marks=str(tmp_path))
        checked = checked >> Checkpoint() if kept else checked
        return (checked >> Shout(suffix=suffix) >> JsonFiles(path=str(out / "loud"))).named("x", out=str(out), max_failed=0.9)

    (tmp_path / "broken").touch()
    assert made(kept=not late).run(workers=0).records["failed"] == 3
    (tmp_path / "broken").unlink()
    assert made(kept=True).run(workers=0, replay=Replay()).records["written"] == 10
    result = made(kept=True, suffix="!").run(workers=0, replace=True)
    assert ("lines" in worked(result)) == late
    sums_up(result)
    assert sorted(r["loud"] for r in written(out / "loud")) == sorted(f"{t.upper()}!" for some in CONTENT.values() for t in some)


def test_it_keeps_the_rules_of_stages():
    rows = pa.table({"id": list("abc"), "source": ["s"] * 3, "text": list("xyz")})
    check_stage(Checkpoint(), TextBatch(rows))
    assert issubclass(Checkpoint, Stage)


def test_an_upstream_edit_says_what_goes_with_the_checkpoint(tmp_path, texts):
    pipeline(texts, tmp_path / "out", kept=(0,)).run(workers=0)
    with pytest.raises(CuratorError, match=r"an edit: early \(word: x, was none\)\. Done again, as no .*: lines, .*checkpoint 7"):
        pipeline(texts, tmp_path / "out", kept=(0,), early="x").run(workers=0)
