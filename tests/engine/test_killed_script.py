"""A user's script with its stages in it, its output below the temporary folder under a name like ours, killed again and again."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from curator.io.files.folder import list_files, open_input
from tests.engine.small_stages import TOKEN, kept_aside, orphans, wait_until

SCRIPT = '''
import sys, time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from curator import Contract, Outputs, Stage, read, stage, write
from curator.io.tables.jsonl import Jsonl
from curator_dedup import DedupExact

inputs, out = sys.argv[1:]
STOP = {"bad"}

@dataclass(kw_only=True)
class Gated(Jsonl):
    """The last file comes when the gate is open, so no run ends before."""

    def read(self, unit):
        while unit.parts[0].uri.endswith("/last.jsonl") and not Path(inputs, "open").exists():
            time.sleep(0.01)
        yield from super().read(unit)

@stage(needs={"text"}, adds={"words": pa.int64()})
def count_words(batch):
    return batch.with_columns({"words": pa.array([len(t.split()) for t in batch.column("text")])})

@dataclass(kw_only=True)
class Pick(Stage):
    """Drops what is bad, and raises at `raise`."""

    name = "pick"
    batch_size = 1

    def contract(self):
        return Contract(needs={"text"})

    def process(self, batch):
        text = batch.column("text")[0]
        if "raise" in text:
            raise ValueError(text)
        bad = bool(STOP & set(text.split()))
        return Outputs(dropped=batch.with_reason("bad")) if bad else batch

made = read(Gated(path=inputs + "/*.jsonl", unit_bytes=200)) >> count_words >> Pick() >> DedupExact(column="text")
result = (made >> write(out)).named("script", max_failed=100).run(workers=2)
sys.exit(not result.ok)
'''
FILES = 8
STARTED: list[subprocess.Popen] = []


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The temporary folder of the script, with things of the user beside its output."""
    place = tmp_path / "tmp"
    for name in ("curator-my-data", "curator-1234-abc/other", f"curator-{os.geteuid()}-1"):
        (place / name).mkdir(parents=True)
        (place / name / "w1-0").write_text("mine")
        os.utime(place / name, (0, 0))
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setenv(TOKEN, str(tmp_path))
    yield place
    for process in STARTED:  # of a test that failed
        process.kill()
    wait_until(lambda: not orphans(str(tmp_path)))
    assert not [p for p in place.glob(f"curator-{os.geteuid()}/*/*") if p.name != "owner.json"]
    for name in ("curator-my-data", "curator-1234-abc/other", f"curator-{os.geteuid()}-1"):
        assert (place / name / "w1-0").read_text() == "mine"


def start(tmp_path, out):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    STARTED.append(subprocess.Popen([sys.executable, str(script), str(tmp_path / "in"), str(out)], stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, text=True))
    return STARTED[-1]


def ends(out):
    """The texts of all records by where they ended."""
    rows = []
    for file in list_files(str(out), suffixes=(".zst",)):
        with open_input(file.uri) as lines:
            rows += map(json.loads, lines)
    assert len({row["id"] for row in rows}) == len(rows)
    aside = {e: kept_aside(out, e) for e in ("dropped", "duplicate", "failed")}
    return {end: Counter(row["text"] for row in rows) for end, rows in {"written": rows, **aside}.items()}


def finished(out):
    """Units that the ledger has."""
    return sum(path.read_text().count('"unit"') for path in out.glob("_run/ledger/*.jsonl"))


def children(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def kill(process, who):
    parts = {"driver": [process.pid], "fork server": children(process.pid)}
    parts["all"] = [*parts["driver"], *parts["fork server"], *(w for n in parts["fork server"] for w in children(n))]
    for pid in parts[who]:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_script_that_is_killed_again_and_again_ends_as_if_it_had_not_been(tmp_path, place):
    (tmp_path / "in").mkdir()
    for n in range(FILES):
        texts = [f"text {n} {k % 4}" for k in range(6)] + ["bad luck", f"raise {n}", "the same", "no"]
        name = f"{n}.jsonl" if n < FILES - 1 else "last.jsonl"
        (tmp_path / "in" / name).write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    out = place / "curator-1234-abc/out"

    def has_folder(process):
        return any(place.glob(f"curator-{os.geteuid()}/{process.pid}-*/owner.json")) and children(process.pid)

    moments = [("driver", lambda process: (out / "_run/manifest.json").exists()),
               ("all", has_folder),
               ("driver", lambda process: any(out.rglob("*part-*.zst*"))),
               ("fork server", lambda process: has_folder(process) and finished(out) >= 2),
               ("driver", lambda process: has_folder(process) and finished(out) == FILES - 1)]
    for who, moment in moments:
        process = start(tmp_path, out)
        wait_until(lambda moment=moment, process=process: process.poll() is not None or moment(process))
        assert process.returncode is None, process.communicate()  # the gate is closed
        kill(process, who)
        process.communicate(timeout=120)
        assert process.returncode != 0
    (tmp_path / "in/open").touch()
    for folder in (out, tmp_path / "calm"):
        process = start(tmp_path, folder)
        told = process.communicate(timeout=120)
        assert process.returncode == 0, told
    assert ends(out) == ends(tmp_path / "calm")
    assert ends(out)["written"].keys() == {f"text {n} {k}" for n in range(FILES) for k in range(4)} | {"the same", "no"}
    stats = [json.loads((folder / "_run/stats.json").read_text()) for folder in (out, tmp_path / "calm")]
    assert stats[0]["records"] == stats[1]["records"]
    assert [stats[0]["records"][end] for end in ("in", "dropped", "failed")] == [10 * FILES, FILES, FILES]
