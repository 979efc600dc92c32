"""Random pipelines over real processes, killed at random: the end is that of a few lines of plain Python, record for record."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.engine.small_stages import TOKEN, chaos, kept_aside, orphans, remains, wait_until, write_lines, written
from tests.marks import soaked_after

SCRIPT = """
import sys
sys.path.insert(0, {here!r})
from tests.engine.small_stages import chaos
result = chaos({seed}, {folder!r}).run(workers=2, check=False)
print(result.stats["status"], result.stats["message"])
sys.exit(not result.ok)
"""
KILLS = 4  # of the driver or the fork server; after that a run may end


def inputs(rng):
    """Texts by file. What a stage does with a record is said by its text alone, so equal texts fare alike."""
    words = ["fine", "fine {n}", "fine {n}", "bad", "bad {n}", "raise {n}", "once {n}", "sleep {n}", "x" * 3000 + " {n}"]
    deadly = rng.choice([["die"], ["hang"], ["once kill"], ["stop"], []])  # once, or a run takes too long
    files = {f"f{i:02}": [rng.choice(words).format(n=rng.randrange(30)) for _ in range(rng.randrange(12))]
             for i in range(rng.randrange(2, 14))}
    for text in deadly:
        rng.choice(list(files.values())).append(text)
    return files, bool(deadly)


def expected(seed, files):
    """What becomes of the records, as texts: {sink or ending: Counter}, and the share of trouble in it."""
    rng, texts = random.Random(seed), Counter(t for lines in files.values() for t in lines)
    ends = {"dropped": Counter(), "duplicate": Counter(), "failed": Counter(), "aside": Counter()}
    for kind in chaos.steps(rng):
        if kind == "drop":
            ends["dropped"] += Counter({t: n for t, n in texts.items() if "bad" in t})
            texts = Counter({t: n for t, n in texts.items() if "bad" not in t})
        elif kind == "trouble":
            fails = ("raise", "die", "hang", "stop")
            ends["failed"] += Counter({t: n for t, n in texts.items() if any(f in t for f in fails)})
            texts = Counter({t: n for t, n in texts.items() if not any(f in t for f in fails)})
        elif kind == "first":
            ends["duplicate"] += Counter({t: n - 1 for t, n in texts.items() if n > 1})
            texts = Counter(dict.fromkeys(texts, 1))
        elif kind == "children":
            texts = Counter({t: 2 * n for t, n in texts.items()})
        elif kind == "aside":
            ends["aside"] += texts
    return ends | {"out": texts}


def found(folder):
    def texts(rows):
        return Counter(row["text"] for row in rows)

    ends = {e: texts(kept_aside(folder / "out", e)) for e in ("dropped", "duplicate", "failed")}
    for name in ("out", "aside"):
        rows = written(folder / name)
        assert len({row["id"] for row in rows}) == len(rows), f"a record is in {name} twice"
        ends[name] = texts(rows)
    return ends


def children(pid):
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def disturb(rng, driver, deadly):
    """Kill something: the driver, the fork server, or a worker (at most one in an attempt: its rows are innocent)."""
    victims = ["driver", "driver", "fork server", "ask"] + ["worker"] * (0 if deadly else 3)
    victim = rng.choice(victims)
    fork_server = children(driver.pid)
    workers = [w for n in fork_server for w in children(n)]
    try:
        if victim == "worker" and workers:
            os.kill(rng.choice(workers), signal.SIGKILL)
            return False
        if victim == "fork server" and fork_server:
            os.kill(fork_server[0], signal.SIGKILL)
        else:
            driver.send_signal(signal.SIGTERM if victim == "ask" else signal.SIGKILL)
    except ProcessLookupError:
        pass
    return True


def attempt(rng, script, deadly, calm):
    """Start the run, wait, disturb it unless `calm`, and wait for its end; gives its process number and how it ended."""
    driver = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        while not calm:
            told = driver.communicate(timeout=rng.uniform(0.3, 1.5))
            break
        else:
            told = driver.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        last = disturb(rng, driver, deadly)
        told = driver.communicate(timeout=120)
        assert last or driver.returncode == 0, told  # a worker's death costs time and nothing else
    return driver, told


@pytest.mark.seeded
@pytest.mark.parametrize("number", soaked_after(1, range(8)))
def test_whatever_is_killed_the_result_is_that_of_plain_python(tmp_path, number, first_seed, monkeypatch):
    seed = first_seed + number
    monkeypatch.setenv(TOKEN, str(tmp_path))
    rng = random.Random(seed)
    files, deadly = inputs(rng)
    write_lines(tmp_path / "in", **files)
    (tmp_path / "marks").mkdir()
    script = SCRIPT.format(here=str(Path(__file__).parents[2]), seed=seed, folder=str(tmp_path))
    drivers, began = [], time.monotonic()
    while True:
        calm = len(drivers) >= KILLS or time.monotonic() - began > 8
        driver, told = attempt(rng, script, deadly, calm)
        drivers.append(driver.pid)
        if driver.returncode == 0:
            break
        assert not calm, told
        assert driver.returncode in (-signal.SIGKILL, -signal.SIGTERM) or told[0].startswith("stopped "), told
    wait_until(lambda: not orphans(str(tmp_path)))
    assert not remains(*drivers)
    assert found(tmp_path) == expected(seed, files)
    stats = json.loads((tmp_path / "out/_run/stats.json").read_text())
    records = stats["records"]
    assert records["in"] == sum(map(len, files.values()))
    ends = {e: sum(c.values()) for e, c in found(tmp_path).items()}
    assert records["written"] == ends["out"] + ends["aside"]
    assert [records[e] for e in ("dropped", "duplicate", "failed")] == [ends[e] for e in ("dropped", "duplicate", "failed")]
    assert records["in"] + records["made"] == sum(records[e] for e in ("written", "dropped", "duplicate", "failed", "absorbed"))
    named = Counter(Path(f["path"]).name for f in stats["files"])
    parts = [p for place in ("out", "aside") for p in (tmp_path / place).rglob("*part-*") if "_run" not in p.parts]
    assert Counter(p.name for p in parts) == named
