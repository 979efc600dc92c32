"""Runs of classes that no worker could import: those of a script, of a notebook, of a module that is nowhere on the path."""

import json
import os
import subprocess
import sys

import pytest

CLASSES = """
from dataclasses import dataclass
from pathlib import Path
import json, os, sys
import pyarrow as pa
from curator import Batch, Contract, Resources, Sink, Source, Stage, TextBatch
from curator.front import from_source
from curator.api.stage import SourceRange, Unit, Writer, WrittenFile
from curator.api.batch import payload


@dataclass(frozen=True)
class Chapter(Unit):
    number: int = 0


class Page:
    def __init__(self, text):
        self.text = text


@dataclass
class Pages(Batch):
    pages: list | None = payload()


@dataclass(kw_only=True)
class Book(Source):
    chapters: int = 6

    def units(self):
        return [Chapter((SourceRange(uri=f"book://{i}", size_bytes=1),), i) for i in range(self.chapters)]

    def contract(self):
        return Contract(adds={"text": pa.string(), "pages": None})

    def read(self, unit):
        assert isinstance(unit, Chapter) and type(unit) is Chapter, type(unit)
        uri, texts = unit.parts[0].uri, [f"chapter {unit.number}, page {page}" for page in range(3)]
        rows = pa.table({"id": [f"{unit.number}.{page}" for page in range(3)], "source": [uri] * 3, "text": texts})
        yield Pages(rows=rows, pages=[Page(text) for text in texts])


@dataclass(kw_only=True)
class Check(Stage):
    seen = None

    def contract(self):
        return Contract(needs={"text", "pages"}, adds={"length": pa.int64(), "pid": pa.int64()})

    def process(self, batch):
        assert type(batch) is Pages and all(type(page) is Page for page in batch.pages), type(batch)
        kinds = Check.seen = (Check.seen or set()) | {id(type(batch)), id(Pages)}
        assert len(kinds) == 1, "a class is there twice"
        assert [page.text for page in batch.pages] == batch.rows.column("text").to_pylist()
        return batch.with_columns({"length": [len(page.text) for page in batch.pages], "pid": [os.getpid()] * len(batch)})


@dataclass(kw_only=True)
class Shelf(Sink):
    path: str

    def open(self, name):
        return ShelfWriter(Path(self.path, name + ".json"))


class Volume(WrittenFile):
    pass


class ShelfWriter(Writer):
    def __init__(self, path):
        self.path, self.rows = path, []

    def write(self, batch):
        self.rows += batch.rows.select(["id", "text", "length", "pid"]).to_pylist()

    def close(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.rows))
        return [Volume(str(self.path), len(self.rows), self.path.stat().st_size)]
"""
GO = """
checks = [Check().with_(name=f"check{i}", batch_size=2, resources=Resources(cpus=0.5 + i / 100)) for i in range(2)]
result = (from_source(Book()) >> checks[0] >> checks[1] >> Shelf(path=OUT)).run(workers=WORKERS)
print(json.dumps([result.records["written"], os.getpid()]))
"""


def run(command, folder, text=None):
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.run([sys.executable, *command], cwd=folder, input=text, capture_output=True, text=True, check=False,
                          timeout=120, env={**os.environ, "PYTHONPATH": path})


def check(done, folder, driver_only=False):
    assert done.returncode == 0, done.stderr
    written, driver = json.loads(done.stdout.splitlines()[-1])
    rows = [row for path in (folder / "out").rglob("part-*.json") for row in json.loads(path.read_text())]
    assert written == len(rows) == 18
    assert {row["id"] for row in rows} == {f"{chapter}.{page}" for chapter in range(6) for page in range(3)}
    assert ({row["pid"] for row in rows} == {driver}) == driver_only


@pytest.mark.parametrize("workers", [0, 2])
def test_all_classes_of_a_run_may_stand_in_its_script(tmp_path, workers):
    (tmp_path / "script.py").write_text(f"{CLASSES}\nOUT, WORKERS = {str(tmp_path / 'out')!r}, {workers}\n{GO}")
    check(run(["script.py"], tmp_path), tmp_path, driver_only=not workers)


def test_or_in_a_notebook_which_is_no_file(tmp_path):
    text = f"{CLASSES}\nOUT, WORKERS = {str(tmp_path / 'out')!r}, 2\n{GO}"
    check(run(["-"], tmp_path, text), tmp_path)


def test_or_in_a_module_beside_the_script(tmp_path):
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "classes.py").write_text(CLASSES)
    script = f"from classes import *\nimport json, os\nOUT, WORKERS = {str(tmp_path / 'out')!r}, 2\n{GO}"
    (tmp_path / "library" / "script.py").write_text(script)
    check(run(["library/script.py"], tmp_path), tmp_path)


def test_or_in_a_module_that_cannot_be_imported_by_its_name(tmp_path):
    (tmp_path / "hidden.py").write_text(CLASSES)
    (tmp_path / "elsewhere").mkdir()
    load = ("import importlib.util, sys, json, os\n"
            f"spec = importlib.util.spec_from_file_location('loaded', {str(tmp_path / 'hidden.py')!r})\n"
            "module = sys.modules['loaded'] = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(module)\n"
            "globals().update({k: v for k, v in vars(module).items() if not k.startswith('__')})\n")
    (tmp_path / "elsewhere" / "script.py").write_text(f"{load}OUT, WORKERS = {str(tmp_path / 'out')!r}, 2\n{GO}")
    check(run(["elsewhere/script.py"], tmp_path), tmp_path)


def test_a_unit_that_a_worker_cannot_read_ends_the_run_and_says_so(tmp_path):
    broken = """
def boom(number):
    raise LookupError(f"no chapter {number} here")

def __reduce__(self):
    return boom, (self.number,)

Chapter.__reduce__ = __reduce__
"""
    (tmp_path / "script.py").write_text(f"{CLASSES}{broken}\nOUT, WORKERS = {str(tmp_path / 'out')!r}, 2\n{GO}")
    done = run(["script.py"], tmp_path)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "a worker of book cannot go on: a message to it cannot be read: LookupError: no chapter" in last
