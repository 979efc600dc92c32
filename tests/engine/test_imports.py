"""What a worker imports for itself, where those who fork it could have done so once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from curator_dedup import DedupExact

from curator import CuratorError, read, write
from curator.stages import Drop, Map
from tests.engine.after_fork import FOLDER, Locked, by_pandas, in_words, stamped, unchanged

# What stages import when they are set up, as they are asked to, so that listing them is quick.
IN_SETUP = {"duckdb", "_duckdb", "html", "secrets", "hmac", "email", "pyarrow.json", "pyarrow._json"}

@pytest.fixture
def noted(tmp_path, monkeypatch):
    """A folder with what was imported after the fork, a file a worker."""
    folder = tmp_path / "imports"
    folder.mkdir()
    monkeypatch.setenv(FOLDER, str(folder))
    return folder


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"id": str(i), "text": f"document {i}"}) + "\n" for i in range(10)))
    return path


def pipeline(texts, out, *stages):
    made = read(str(texts))
    for one in stages:
        made = made >> one
    return made >> write(str(out), compression="none")


def rows(out):
    return [json.loads(line) for path in sorted(Path(out).rglob("part-*.jsonl")) for line in path.read_text().splitlines()]


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads in /proc")
def test_a_worker_imports_next_to_nothing_after_the_fork(tmp_path, texts, noted):
    stages = Map(columns={"n": "length(text)"}), Drop(conditions={"short": "n < 5"}), unchanged, DedupExact(column="text")
    assert pipeline(texts, tmp_path / "out", *stages).run(workers=2).records["written"] == 10
    workers = [path.read_text().splitlines() for path in noted.iterdir()]
    assert len(workers) >= 4  # one for each operator
    assert {threads for threads, *_ in workers} == {"1"}, "a process with threads was forked"
    imported = {name for _, *names in workers for name in names}
    assert {n for n in imported if n not in IN_SETUP and n.split(".")[0] not in IN_SETUP} == set()


def test_a_run_from_the_command_line_never_imports_pandas(tmp_path, texts):
    """Where it is installed, Arrow would. A package of its name stands for it, which Arrow could not even use."""
    (tmp_path / "site" / "pandas").mkdir(parents=True)
    (tmp_path / "site" / "pandas" / "__init__.py").write_text("raise RuntimeError('somebody imports pandas')")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"read: {{jsonl: {{path: {texts}}}}}\nsteps:\n  - map: {{columns: {{n: length(text)}}}}\n"
                      f"  - dedup.exact: {{column: text}}\nwrite: {{jsonl: {{path: {tmp_path / 'out'}, compression: none}}}}\n")
    path = os.pathsep.join([str(tmp_path / "site"), *filter(None, sys.path)])
    command = [sys.executable, "-m", "curator", "run", str(recipe), "--workers", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    assert len(rows(tmp_path / "out")) == 10


def test_a_stage_that_uses_pandas_gets_it_whole(tmp_path, texts):
    pytest.importorskip("pandas")
    assert pipeline(texts, tmp_path / "out", by_pandas).run(workers=1).records["written"] == 10
    assert {(row["kind"], row["rows"]) for row in rows(tmp_path / "out")} == {("Timestamp 1", 10)}


def test_times_in_nanoseconds_are_those_of_pandas_where_it_is_installed(tmp_path, texts):
    pytest.importorskip("pandas")
    assert pipeline(texts, tmp_path / "out", stamped, in_words).run(workers=1).records["written"] == 10
    assert {row["iso"] for row in rows(tmp_path / "out")} == {"2023-11-14T22:13:20.123456789"}


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stage_that_cannot_be_pickled_is_an_error_before_the_run_that_names_it(tmp_path, texts, workers):
    with pytest.raises(CuratorError, match=r"locked cannot be sent to a worker: cannot pickle '_thread.lock' object.*in setup"):
        pipeline(texts, tmp_path / "out", Locked()).run(workers=workers)
