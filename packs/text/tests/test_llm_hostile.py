"""Servers that are slow, busy, wrong, or cut off, and runs that are killed: every record ends once, and no answer is paid for twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from curator_text import Llm

from curator.api.tasks import TextBatch
from curator.testing import run_stage
from packs.image.tests.chat_server import Model, completion


@pytest.fixture
def model():
    made = Model()
    yield made
    made.close()


TROUBLES = {  # what a server does at the first, second, … time it is asked, and how the record ends
    "good": ["good"], "slow": ["slow"], "busy": ["busy", "busy", "good"], "down": ["down", "good"], "hangs_up": ["hangs_up", "good"],
    "no_json": ["no_json", "good"], "cut_off": ["cut_off", "cut_off"], "wrong": ["wrong", "wrong"], "refused": ["refused"],
    "no_completion": ["no_completion"], "declined": ["declined"]}
ENDS = {"cut_off": "(cut off at max_tokens)", "wrong": "n is 'many' and no integer", "refused": "HTTP 400",
        "no_completion": "is no chat completion", "declined": "the model declined"}


def test_whatever_a_server_does_each_record_ends_once(model):
    texts = [f"{kind} {n}" for n in range(30) for kind in TROUBLES]
    asked, lock = Counter(), threading.Lock()

    def answer(question):
        text = question["messages"][-1]["content"]
        with lock:
            asked[text] += 1
            does = TROUBLES[text.split()[0]][asked[text] - 1]
        time.sleep(0.02 if does == "slow" else 0)
        return {"good": completion('{"n": 1}'), "slow": completion('{"n": 1}'), "busy": (429, {"error": "slower"}),
                "down": (503, b"<html>"), "hangs_up": None, "no_json": completion("Well."), "cut_off": completion('{"n": ', "length"),
                "wrong": completion('{"n": "many"}'), "refused": (400, {"error": "too long"}),
                "no_completion": (200, b'{"choices": []}'), "declined": completion(None, refusal="no")}[does]

    model.answer, model.extra = answer, {"Retry-After": "0"}
    asking = Llm(url=model.url, model="m", prompt="{text}", fields={"n": "integer"}, attempts=2, concurrency=64, backoff_s=0.001)
    ports = run_stage(asking, TextBatch(pa.table({"id": texts, "source": ["s"] * len(texts), "text": texts})))
    assert sorted(ports["out"].column("id") + ports["failed"].column("id")) == sorted(texts)
    assert set(ports["out"].column("n")) == {1}
    for text, error in zip(ports["failed"].column("id"), ports["failed"].column("error"), strict=True):
        assert ENDS[text.split()[0]] in error
    assert {text.split()[0] for text in ports["failed"].column("id")} == set(ENDS)
    assert asked == {text: len(TROUBLES[text.split()[0]]) for text in texts}


RECIPE = """
name: killed
read: {{jsonl: {{path: {folder}/in/*.jsonl}}}}
steps:
  - text.llm: {{url: {url}, model: m, prompt: "{{text}}", cache: {folder}/answers, concurrency: 4}}
write: parquet
"""


class Paid:
    """A server that answers so many questions and then keeps all others waiting until it is let go."""

    def __init__(self, model):
        self.answered, self.waiting, self.most, self.lock = Counter(), 0, 0, threading.Lock()
        self.free = threading.Event()
        model.answer = self.answer

    def answer(self, question):
        text = question["messages"][-1]["content"]
        with self.lock:
            free = self.free
            if self.answered.total() < self.most:
                self.answered[text] += 1
                return completion(f"said {text}")
            self.waiting += 1
        free.wait(150)  # who asked is dead by then, and pays nothing
        return None


def processes_of(session):
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[3]) == session:
                yield int(stat.parent.name)
        except (OSError, ValueError):
            continue


@pytest.mark.slow
def test_killed_runs_lose_no_record_and_pay_for_none_twice(model, tmp_path):
    (tmp_path / "in").mkdir()
    for part in range(3):
        (tmp_path / "in" / f"{part}.jsonl").write_text("".join(json.dumps({"id": f"{part}-{n}", "text": f"text {part}-{n}"}) + "\n"
                                                               for n in range(60)))
    (tmp_path / "r.yaml").write_text(RECIPE.format(folder=tmp_path, url=model.url))
    command = [sys.executable, "-m", "curator", "run", str(tmp_path / "r.yaml"), "--out", str(tmp_path / "out"), "--workers", "1"]
    paid = Paid(model)
    for most in (17, 61, 150):
        with paid.lock:
            paid.most, paid.waiting, paid.free = most, 0, threading.Event()
        run = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 120
        while paid.waiting < 4:  # each thread waits, so all that was answered before has come
            assert time.monotonic() < end
            assert run.poll() is None
            time.sleep(0.01)
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        for pid in processes_of(run.pid):  # should a worker have left the group
            os.kill(pid, signal.SIGKILL)
        while list(processes_of(run.pid)):
            time.sleep(0.01)
        paid.free.set()
        assert paid.answered.total() == most
    paid.most = 10**9
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    texts = [f"text {part}-{n}" for part in range(3) for n in range(60)]
    assert paid.answered == dict.fromkeys(texts, 1)
    rows = [row for file in (tmp_path / "out" / "data").rglob("*.parquet") for row in pq.read_table(file).to_pylist()]
    assert sorted(row["text"] for row in rows) == sorted(texts)
    assert all(row["answer"] == f"said {row['text']}" for row in rows)
