"""A run in shards: the same records as in one piece, whichever shard dies where, whichever never ran."""

import json

import pytest
from click.testing import CliRunner

from curator import CuratorError, read, write
from curator.cli.main import main
from curator.io.files.folder import Folder
from curator.results.look.compare import compare
from curator.results.output import RunOutput
from curator.run.folder.lock import take
from curator.run.folder.shards import Shard, shards_in
from curator.run.replay import Replay
from curator.stages import Drop, Top
from tests.engine import test_ledger
from tests.engine.small_stages import DropWord, FirstOfText, Lines, Shout, lines, write_lines
from tests.engine.test_ledger import crashes, everything, files, pipeline, sink
from tests.results.fixable import Fixable

CONTENT = {**test_ledger.CONTENT, **{f"more{i}": [f"line {i}", "same", f"bad {i}"] for i in range(8)}}
COUNT = 3


@pytest.fixture
def texts(tmp_path):
    """Each shard has a unit, whatever this test's folder is called."""
    while True:
        folder = write_lines(tmp_path / "in", **CONTENT)
        units = Lines(path=str(folder)).units()
        if all(any(Shard(COUNT, i).has(unit) for unit in units) for i in range(1, COUNT + 1)):
            return folder


@pytest.fixture
def calm(tmp_path, texts):
    pipeline(texts, tmp_path / "calm").run(workers=0)
    return tmp_path / "calm"


def in_shards(texts, out, numbers=range(1, COUNT + 1), count=COUNT, **options):
    return [pipeline(texts, out, **options).run(workers=0, shard=f"{i}/{count}") for i in numbers]


def same(stats, others):
    """The accounts of two runs, but for names and times, and what workers found busy."""
    keep = ("name", "in", "made", "out", "dropped", "duplicate", "failed", "absorbed")
    return [{key: s[key] for key in keep} for s in stats["stages"]] == [{key: s[key] for key in keep} for s in others["stages"]]


def test_shards_and_the_run_that_gathers_them_are_as_one_run(tmp_path, texts, calm):
    out = tmp_path / "out"
    parts = in_shards(texts, out)
    assert all(part.ok and not part.stats["alarms"] for part in parts)
    assert sum(part.records["in"] for part in parts) == sum(map(len, CONTENT.values()))
    assert all(0 < part.stats["units"]["total"] < len(CONTENT) for part in parts)
    assert [str(shard) for shard in shards_in(Folder.open(str(out)))] == ["1/3", "2/3", "3/3"]
    with pytest.raises(CuratorError, match="holds shards that nobody has gathered"):
        RunOutput.open(str(out))
    whole = pipeline(texts, out).run(workers=0)
    one = json.loads((calm / "_run/stats.json").read_text())
    assert whole.ok
    assert whole.stats["units"] == {"done": 12, "total": 12, "skipped": 12}
    assert everything(out) == everything(calm)
    assert whole.records == one["records"]
    assert same(whole.stats, one)
    assert not shards_in(Folder.open(str(out)))
    assert not list(out.glob("_run/shards/*/data/**/part-*"))


def test_afterwards_it_is_a_folder_like_any_and_grows_in_other_shards(tmp_path, texts):
    """Nothing is done twice; another number of shards is fine once all are gathered; an edit clears what shards made."""
    out = tmp_path / "out"
    in_shards(texts, out)
    pipeline(texts, out).run(workers=0)
    before = files(out)
    assert "12 of 12 units done as it says now" in pipeline(texts, out).plan()
    assert pipeline(texts, out).run(workers=0).stats["units"]["skipped"] == len(CONTENT)
    assert files(out) == before
    write_lines(texts, **{f"late{i}": [f"late {i}", "same"] for i in range(6)})
    assert sum(part.stats["units"]["total"] for part in in_shards(texts, out, (1, 2), 2)) == 6
    whole = pipeline(texts, out).run(workers=0)
    pipeline(texts, tmp_path / "calm").run(workers=0)
    assert everything(out) == everything(tmp_path / "calm")
    assert whole.stats["units"]["total"] == len(CONTENT) + 6
    edited = pipeline(texts, out, suffix="!", word="same").run(workers=0, replace=True)
    pipeline(texts, tmp_path / "edited", suffix="!", word="same").run(workers=0)
    assert everything(out) == everything(tmp_path / "edited")
    assert edited.ok
    assert len(files(out)) > 0


def test_who_gathers_may_die_at_every_change_of_the_disk(tmp_path):
    """Before and after each rename of a file, the line that names it, and the end of the shard. (That a shard may, as any run, is
    in test_ledger.py.)"""
    texts, out = write_lines(tmp_path / "in", **test_ledger.CONTENT), tmp_path / "out"
    calm = pipeline(texts, tmp_path / "calm").run(workers=0)
    in_shards(texts, out)
    assert crashes(lambda: pipeline(texts, out).run(workers=0)) > 20
    result = pipeline(texts, out).run(workers=0)
    assert everything(out) == everything(tmp_path / "calm")
    assert same(result.stats, calm.stats)
    assert not list(out.glob("_run/shards/*/**/part-*"))
    assert not shards_in(Folder.open(str(out)))


def test_a_shard_that_is_requeued_while_another_run_gathers_does_nothing_twice(tmp_path, texts, calm, monkeypatch):
    """The gathering run is killed when it has taken in the first shard's units, before that shard knows."""
    out = tmp_path / "out"
    in_shards(texts, out)

    class Killed(Exception):
        pass

    def killed(ledger):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("curator.run.folder.ledger.Ledger.give_up", killed)
        with pytest.raises(Killed):
            pipeline(texts, out).run(workers=0)
    assert [part.stats["units"]["skipped"] == part.stats["units"]["total"] for part in in_shards(texts, out)] == [True] * 3
    pipeline(texts, out).run(workers=0)
    assert everything(out) == everything(calm)


def test_records_that_failed_in_shards_are_told_with_the_first_error_and_run_again_alone(tmp_path, texts):
    (tmp_path / "broken").touch()
    made = (lines(texts) >> Fixable(marks=str(tmp_path), word="bad 1") >> FirstOfText()
            >> sink(tmp_path / "out")).named("x", out=str(tmp_path / "out"), max_failed=0.9)
    for i in (1, 2):
        made.run(workers=0, shard=f"{i}/2")
    whole = made.run(workers=0)
    assert whole.records["failed"] == 2
    assert [error.stage for error in whole.first_errors] == ["fixable"]
    (tmp_path / "broken").unlink()
    again = made.run(workers=0, replay=Replay())
    assert again.records["failed"] == 0
    assert again.stats["units"]["skipped"] == len(CONTENT) - 2  # only their units have new lines
    whole = made.run(out=str(tmp_path / "calm"), workers=0)
    assert again.records == whole.records


def test_what_nobody_has_done_is_named_and_done_only_when_somebody_says_so(tmp_path, texts):
    out, asked = tmp_path / "out", []

    def made(fail=""):
        return lines(texts) >> DropWord() >> sink(out, fail=fail)

    made().run(workers=0, shard="1/3")
    assert made("write").run(workers=0, shard="2/3", check=False).stats["status"] == "stopped"
    words = r"of 12 units are not done yet: shard 2/3 is stopped \(.*\), shard 3/3 never ran\. Run these shards \(again\), or go on"
    with pytest.raises(CuratorError, match=words):
        made().run(workers=0)
    assert [str(shard) for shard in shards_in(Folder.open(str(out)))] == ["1/3", "2/3"]
    whole = made().run(workers=0, replace=lambda text: asked.append(text) or True)
    assert asked[0].endswith("never ran; here they are done by one run")
    assert whole.ok
    assert whole.records["written"] + whole.records["dropped"] == sum(map(len, CONTENT.values()))
    assert whole.stats["units"]["skipped"] < len(CONTENT) == whole.stats["units"]["done"]


def test_nobody_gathers_from_a_shard_that_works_or_joins_a_run_that_gathers(tmp_path, texts):
    out = Folder.open(str(tmp_path / "out"))
    in_shards(texts, tmp_path / "out")
    lock = take(Shard.of("2/3").folder(out))
    with pytest.raises(CuratorError, match=r"another run .* writes to .*2-of-3"):
        pipeline(texts, tmp_path / "out").run(workers=0)
    lock.release()
    lock = take(out)
    with pytest.raises(CuratorError, match=r"a run without a shard \(process \d+ .*wait for its end, then run shard 2/3 again"):
        in_shards(texts, tmp_path / "out", (2,))
    lock.release()


REFUSED = {
    "what is no shard": ({"shard": "0/8"}, r"write it as 3/8, the third of eight; the first is 1/8 \(Slurm: --array=1-8\)"),
    "more than there are": ({"shard": "9/8"}, "write it as 3/8"),
    "batch mode": ({"shard": "1/8", "mode": "batch"}, "shards stream: leave --mode batch out"),
    "another number": ({"shard": "1/8"}, "has shards of 3 that nobody has gathered"),
}


@pytest.mark.parametrize(("options", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_with_what_to_do(tmp_path, texts, options, words):
    in_shards(texts, tmp_path / "out", (1,))
    with pytest.raises(CuratorError, match=words):
        pipeline(texts, tmp_path / "out").run(workers=0, **options)


def test_a_sink_elsewhere_or_results_of_another_recipe_are_refused(tmp_path, texts):
    away = (lines(texts) >> sink(tmp_path / "away")).named("x", out=str(tmp_path / "out"))
    with pytest.raises(CuratorError, match=r"writes to .*away, and shards write into .*out only: leave its path out"):
        away.run(workers=0, shard="1/2")
    made = lines(texts) >> DropWord() >> Shout()
    (made >> sink(tmp_path / "whole")).run(workers=0)
    (made >> sink(tmp_path / "whole")).run(workers=0, shard="1/2")  # nothing is left for it to do
    with pytest.raises(CuratorError, match=r"results of 12 units that are to be done again.*run without --shard"):
        (lines(texts) >> DropWord(word="x") >> Shout() >> sink(tmp_path / "whole")).run(workers=0, shard="1/2")


def test_what_is_told_of_records_is_that_of_any_run(tmp_path):
    (tmp_path / "docs").mkdir()
    for i in range(6):
        rows = [{"id": f"{i}-{j}", "text": f"{'bad' if j == 3 else 'good'} {i} {max(j, 1)}", "n": i * 10 + j} for j in range(5)]
        (tmp_path / f"docs/{i}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = (read(f"{tmp_path}/docs/*.jsonl", unit_bytes=100) >> Drop(conditions={"bad": "text LIKE 'bad%'"}) >> "dedup.exact"
            >> Top(by="n", n=12) >> write())
    for i in (1, 2):
        made.run(shard=f"{i}/2", out=f"{tmp_path}/out", workers=0)
    whole = made.run(out=f"{tmp_path}/out", workers=0)
    assert whole.records == made.run(out=f"{tmp_path}/one", workers=0).records
    found = compare(RunOutput.open(f"{tmp_path}/out"), RunOutput.open(f"{tmp_path}/one"))
    assert (found.same, found.moved, found.inputs) == (30, [], {"gone": [], "new": [], "changed": []})


def test_the_command_line_shards_and_shows_them(tmp_path):
    (tmp_path / "docs").mkdir()
    for i in range(8):
        (tmp_path / f"docs/{i}.jsonl").write_text(json.dumps({"id": f"{i}", "text": f"text {i}"}) + "\n" + " " * 70_000)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"name: x\nread:\n  jsonl: {{path: {tmp_path}/docs/*.jsonl, unit_bytes: 1000}}\nsteps: []\n"
                      f"write: parquet\nout: {tmp_path}/out\n")
    said = CliRunner().invoke(main, ["run", str(recipe), "--workers", "0", "-q", "--shard", "1/2"])
    assert said.exit_code == 0, said.output
    shown = CliRunner().invoke(main, ["show", str(tmp_path / "out")]).output
    assert "1/2" in shown
    assert "1 shard of 2 never began" in shown
    assert "without --shard gathers them" in shown
