"""What a type checker finds in a user's script: wrong parameters, wrong types, typing errors; and no fault in a right one."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from curator.outside.options import RunOptions
from curator.run.run import run

SCRIPT = '''\
from collections.abc import Iterator

import pyarrow

from curator import Result, packs, read, write
from curator.packs import dedup, text
from curator.stages import Drop, Limit

pipeline = read("docs/*.jsonl") >> text.Signals() >> Drop({"short": "length(text) < 9"}) >> dedup.DedupExact()
table: pyarrow.Table = pipeline.collect(workers=2)
result: Result = (pipeline >> write("out/")).run(workers=2, mode="batch")
written: int = result.records["written"]
names = [stage.name.upper() for stage in pipeline.preview(3)]
tables: Iterator[pyarrow.Table] = iter(pipeline)
drawn: str = pipeline.to_yaml() + repr(pipeline.schema())
made = Limit(records=3).apply(table)
print(packs.text.Split(), packs.core.Split, pipeline.to_torch(columns=["text"]))


Drop(condition={"short": "length(text) < 9"})  # call-arg
Drop({"short": 9})  # dict-item
Drop({"short": "true"}, "gopher_quality")  # call-arg
text.Signls()  # attr-defined
packs.dedpu.DedupExact()  # attr-defined
pipeline.run(worker=2)  # call-arg
pipeline.run(workers="two")  # arg-type
pipeline.to_torch(columns="text")  # arg-type
pipeline.run(engine="spark")  # arg-type
result.recrods  # attr-defined
'''
CONFIG = """[mypy]
follow_imports = silent
ignore_missing_imports = true
[mypy-torch.*,pandas.*,numpy.*,ray.*,rich.*]
follow_imports = skip
"""


def test_the_options_of_a_run_are_those_that_checkers_know():
    assert RunOptions.__annotations__.keys() == set(inspect.signature(run).parameters) - {"pipeline"}


@pytest.mark.slow
def test_mypy_finds_the_faults_of_a_script_and_no_others(tmp_path):
    pytest.importorskip("mypy")
    script, config = tmp_path / "script.py", tmp_path / "mypy.ini"
    script.write_text(SCRIPT)
    config.write_text(CONFIG)
    root = Path(__file__).parents[2]
    paths = os.pathsep.join(map(str, (root, *(pack for pack in (root / "packs").iterdir() if pack.is_dir()))))
    done = subprocess.run([sys.executable, "-m", "mypy", f"--config-file={config}", f"--cache-dir={tmp_path / 'cache'}", str(script)],
                          env={**os.environ, "MYPYPATH": paths}, capture_output=True, text=True, timeout=280)
    found = re.findall(r"script.py:(\d+): error: .*\[([\w-]+)\]", done.stdout)
    wanted = [(str(number), line.rpartition("# ")[2]) for number, line in enumerate(SCRIPT.splitlines(), 1) if "  # " in line]
    assert found == wanted, done.stdout + done.stderr
