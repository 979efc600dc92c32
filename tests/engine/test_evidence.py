"""However a run ends, what failed is kept with its traceback, the counts are true, and the first error is told with its line."""

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from curator import CuratorError, Stage
from curator.api.errors import RunStopped
from curator.cli.main import main
from curator.pipeline.plan import make_plan
from curator.trial.preview import preview
from tests.engine.small_stages import Loses, NoSetup, Shout, Trouble, kept_aside, lines, sink_in, wait_until, write_lines, written

MODES = pytest.mark.parametrize("workers", [0, 2])
HERE = str(Path(__file__))


@dataclass(kw_only=True)
class Divides(Stage):
    """Has a bug."""

    def process(self, batch):
        return batch.with_columns({"share": [1 / (len(text) - 3) for text in batch.column("text")]})


LINE = next(n for n, line in enumerate(Path(__file__).read_text().splitlines(), 1) if "1 / (len(text) - 3)" in line)


def accounts(stats: dict) -> None:
    """Every stage and the run add up."""
    records = stats["records"]
    ends = ("written", "dropped", "duplicate", "failed", "absorbed")
    assert records["in"] + records["made"] == sum(records[e] for e in ends) + records.get("unfinished", 0)
    for stage in stats["stages"]:
        gone = sum((*stage["out"].values(), *stage["dropped"].values(), *(stage[e] for e in ends[2:])))
        assert stage["in"] + stage["made"] == gone
    assert not [alarm for alarm in stats["alarms"] if alarm["level"] == "error"]


def evidence(out: Path, stats: dict) -> list[dict]:
    """What lies in `failed/`, which is what the files of the stats name, and all that failed."""
    rows = kept_aside(out, "failed")
    named = [f for f in stats["files"] if f["port"] == "failed"]
    assert sum(f["rows"] for f in named) == len(rows) == stats["records"]["failed"]
    assert {str(out / f["path"]) for f in named} == {str(p) for p in (out / "failed").rglob("*.parquet")}
    return rows


@MODES
def test_a_bug_in_a_stage_leaves_every_failed_row_with_its_traceback(tmp_path, workers):
    texts = write_lines(tmp_path / "in", **{f"f{i}": ["bug"] * 40 for i in range(4)})
    result = (lines(texts) >> Divides() >> sink_in(tmp_path)).named("x", max_failed=50).run(check=False, workers=workers)
    assert result.stats["status"] == "stopped"
    assert result.stats["stopped_by"] == "max_failed"
    rows = evidence(tmp_path / "out", result.stats)
    assert len(rows) > 50
    assert {row["error"] for row in rows} == {"ZeroDivisionError: division by zero"}
    assert all("1 / (len(text) - 3)" in row["traceback"] for row in rows)
    accounts(result.stats)
    assert result.stats["message"].startswith(f"{len(rows)} of {result.records['in']} records failed, more than max_failed = 50")
    first = result.first_errors[0]
    assert (first.stage, first.error, first.file, first.line) == ("divides", rows[0]["error"], HERE, LINE)
    assert first.record in {row["id"] for row in rows}
    assert "ZeroDivisionError" in first.traceback
    assert not written(tmp_path / "out", "**/part-*.json")  # of units that are not finished nothing else is left


@MODES
def test_the_next_attempt_does_these_units_again_and_no_row_lies_there_twice(tmp_path, workers):
    texts = write_lines(tmp_path / "in", **{f"f{i}": ["bug", "fine"] * 20 for i in range(4)})
    made = lines(texts) >> Divides() >> sink_in(tmp_path)
    stopped = made.named("x", max_failed=30).run(check=False, workers=workers)
    evidence(tmp_path / "out", stopped.stats)
    finished = made.named("x", max_failed=1000).run(check=False, workers=workers)
    assert finished.ok
    assert (finished.records["failed"], finished.records["written"]) == (80, 80)
    rows = evidence(tmp_path / "out", finished.stats)
    assert len({row["id"] for row in rows}) == 80
    accounts(finished.stats)


@dataclass(kw_only=True)
class Wants(Stage):
    """Wants what is not here, and says so on purpose."""

    def setup(self, ctx):
        raise CuratorError("model: none is here; give one")

    def process(self, batch):
        return batch


@MODES
def test_of_fused_steps_the_one_that_cannot_be_set_up_is_named(tmp_path, workers):
    texts = write_lines(tmp_path / "in", a=["fine"])
    made = lines(texts) >> Shout() >> Wants() >> sink_in(tmp_path)
    assert ["shout", "wants"] in [[step.name for step in one.steps] for phase in make_plan(made).phases for one in phase.operators]
    result = made.run(check=False, workers=workers)
    assert result.first_errors[0].stage == "wants"
    assert "cannot be set up: stage 'wants': model: none is here; give one" in result.stats["message"]


@MODES
@pytest.mark.parametrize(("breaks", "told"), [
    (lambda: NoSetup(), "the model file is not there"), (lambda: Loses().with_(batch_size=7), "are on no port")],
    ids=["setup", "stage"])
def test_a_run_that_a_broken_stage_ends_keeps_what_failed_before(tmp_path, workers, breaks, told):
    """The broken stage gets only what is not a bug, behind a gate: when it is reached, rows have failed."""
    texts = write_lines(tmp_path / "in", a=["bug"] * 20, b=["bug"] * 20 + ["fine"] * 100)
    made = lines(texts) >> Divides() >> breaks() >> sink_in(tmp_path)
    result = made.named("x", max_failed=1000).run(check=False, workers=workers)
    assert (result.stats["status"], result.stats["stopped_by"]) == ("stopped", "broken")
    assert told in result.stats["message"] + str(result.first_errors)
    evidence(tmp_path / "out", result.stats)
    accounts(result.stats)


def test_the_exception_shows_the_first_error_with_the_line_of_the_users_code(tmp_path):
    texts = write_lines(tmp_path / "in", a=["bug"] * 40)
    with pytest.raises(RunStopped) as stopped:
        (lines(texts) >> Divides() >> sink_in(tmp_path)).named("x", max_failed=5).run(workers=0)
    message, first = str(stopped.value).split("\n")
    assert "records failed, more than max_failed = 5 allows; most of them in stage divides; they are in" in message
    assert first.startswith("first error in stage divides, record a:")
    assert first.endswith(f"{HERE} line {LINE}: ZeroDivisionError: division by zero")


def test_a_setup_that_raises_is_told_with_its_line(tmp_path):
    texts = write_lines(tmp_path / "in", a=["fine"])
    for workers in (0, 2):
        result = (lines(texts) >> NoSetup() >> sink_in(tmp_path)).run(check=False, workers=workers)
        first = result.first_errors[0]
        assert (first.stage, Path(first.file).name) == ("no_setup", "small_stages.py")
        assert "the model file is not there" in Path(first.file).read_text().splitlines()[first.line - 1]


def test_a_sink_that_cannot_write_does_not_hide_what_failed(tmp_path):
    texts = write_lines(tmp_path / "in", a=["bug"] * 5 + ["fine"] * 20, b=["bug"] * 5)
    made = lines(texts) >> Divides() >> sink_in(tmp_path, fail="write")
    result = made.named("x", max_failed=1000).run(check=False, workers=2)
    assert result.stats["status"] == "stopped"
    assert "this sink cannot write" in result.first_errors[0].error
    assert {error.stage for error in result.first_errors} >= {"divides"}
    accounts(result.stats)


def test_what_failed_is_written_before_what_a_sink_cannot_write(tmp_path):
    texts = write_lines(tmp_path / "in", a=["fine", "bug"] * 100)
    made = lines(texts) >> Divides() >> sink_in(tmp_path, fail="write")
    result = made.named("x", max_failed=1000).run(check=False, workers=0)
    assert result.stats["status"] == "stopped"
    assert sum(f["rows"] for f in result.stats["files"] if f["port"] == "failed") == result.records["failed"] > 0


@MODES
def test_a_failed_branch_behind_a_barrier_leaves_its_evidence_too(tmp_path, workers):
    from tests.engine.reductions import CountText

    texts = write_lines(tmp_path / "in", a=["bug", "raise", "fine"] * 20)
    made = lines(texts) >> Trouble() >> CountText() >> Divides() >> sink_in(tmp_path)
    result = made.named("x", max_failed=30).run(check=False, workers=workers)
    assert result.stats["status"] == "stopped"
    rows = evidence(tmp_path / "out", result.stats)
    assert sum("ZeroDivisionError" in row["error"] for row in rows) > 10
    assert sum("cannot stand" in row["error"] for row in rows) == 20
    assert len({row["id"] for row in rows}) == len(rows)
    accounts(result.stats)
    finished = made.named("x", max_failed=1000).run(check=False, workers=workers)
    assert finished.records["failed"] == len(evidence(tmp_path / "out", finished.stats)) == 40


def test_a_preview_tells_that_all_rows_failed_and_where(tmp_path):
    read, divides = preview(lines(write_lines(tmp_path / "in", a=["bug"] * 3)) >> Divides())
    assert divides.all_failed
    assert not read.all_failed
    assert (divides.error.file, divides.error.line, divides.error.record) == (HERE, LINE, "a:0")
    read, divides = preview(lines(write_lines(tmp_path / "in", a=["bug", "fine"])) >> Divides())
    assert not divides.all_failed


SCRIPT = """
import sys
from dataclasses import dataclass
sys.path.insert(0, {here!r})
from curator import Stage
from curator.cli.main import main
from tests.engine.small_stages import *

@dataclass(kw_only=True)
class Divides(Stage):
    def process(self, batch):
        return batch.with_columns({{"share": [1 / (len(text) - 3) for text in batch.column("text")]}})

if __name__ == "__main__":
    made = lines({texts!r}, batch=1, delay_s=0.05) >> Divides() >> sink_in({folder!r})
    result = made.named("x", max_failed={max_failed}).run(check=False, workers=2)
    print(result.stats["status"], result.stats["stopped_by"])
    for error in result.first_errors:
        print(error)
"""


def script(tmp_path, texts: Path, max_failed: float = 1000) -> subprocess.Popen:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.format(here=str(Path(__file__).parents[2]), texts=str(texts), folder=str(tmp_path),
                                  max_failed=max_failed))
    return subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def script_line(tmp_path) -> int:
    return next(n for n, text in enumerate((tmp_path / "script.py").read_text().splitlines(), 1) if "1 / (" in text)


def test_a_stage_of_a_script_is_told_with_the_scripts_line(tmp_path):
    texts = write_lines(tmp_path / "in", a=["bug"] * 20)
    out, err = script(tmp_path, texts, max_failed=3).communicate(timeout=120)
    assert out.startswith("stopped max_failed"), err
    assert f"{tmp_path / 'script.py'} line {script_line(tmp_path)}: ZeroDivisionError" in out


def working(tmp_path) -> subprocess.Popen:
    """A run of which 8 records have failed, that says so, and that has more to do than anybody waits for."""
    texts = write_lines(tmp_path / "in", a=["bug"] * 8, b=["fine"] * 20_000)
    process = script(tmp_path, texts)
    stats = tmp_path / "out/_run/stats.json"
    wait_until(lambda: stats.exists() and json.loads(stats.read_text())["records"]["failed"] == 8)
    return process


def shown(folder: Path) -> str:
    return CliRunner().invoke(main, ["show", str(folder)], catch_exceptions=False).output


def test_show_tells_a_run_that_works_from_one_that_was_killed(tmp_path):
    process = working(tmp_path)
    told = shown(tmp_path / "out")
    assert "pipeline running" in told or "x running" in told
    assert f"process {process.pid} on " in told
    assert "8 failed + " in told
    assert f"line {script_line(tmp_path)}: ZeroDivisionError" in told
    process.kill()
    process.communicate(timeout=60)
    wait_until(lambda: "was killed, or its machine went" in shown(tmp_path / "out"))
    assert "x killed" in shown(tmp_path / "out")


@pytest.mark.parametrize(("number", "kind"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")])
def test_a_signal_leaves_what_failed_until_then(tmp_path, number, kind):
    process = working(tmp_path)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert out.startswith(f"stopped {kind}"), err
    stats = json.loads((tmp_path / "out/_run/stats.json").read_text())
    assert len(evidence(tmp_path / "out", stats)) == 8
    accounts(stats)
