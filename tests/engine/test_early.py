"""The parent of workers that `curator run` forks from itself, in an interpreter of its own each time."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.small_stages import TOKEN, orphans, wait_until

RUN = """
import json, os, sys
from curator.worker import fork_server
fork_server.fork_early()
before = fork_server._made[0]
{between}
from curator import read, stage

@stage(adds={{"told": "string"}})
def tells(batch):
    server = os.getppid()
    told = json.dumps([server, os.environ.get("SAID"), os.getcwd(), os.environ["OMP_NUM_THREADS"], os.getsid(server),
                       len(os.listdir(f"/proc/{{server}}/task"))])
    return batch.with_columns({{"told": [told] * len(batch)}})

table = (read([{{"id": "a"}}]) >> tells).collect(workers=1)
print(json.dumps([before.process.pid, *json.loads(table["told"][0].as_py()), os.environ.get("OMP_NUM_THREADS")]))
"""

GROUPS = """
from curator.worker import fork_server
fork_server.fork_early()
from curator import read, stage

@stage(adds={"others": "int64"})
def groups(batch):
    import pyarrow as pa
    pa.table({"a": range(1000)}).group_by("a").aggregate([("a", "sum")])
    pools = [getattr(pa, f"{name}_memory_pool")() for name in pa.supported_memory_backends() if name != "system"]
    return batch.with_columns({"others": [sum(pool.max_memory() for pool in pools)] * len(batch)})

print((read([{"id": "a"}]) >> groups).collect(workers=1)["others"][0])
"""

TWO_PHASES = """
from curator.worker import fork_server
fork_server.fork_early()
from curator import Reduce, Stage, read

class Speaks(Stage):
    def setup(self, ctx):
        print("loaded")

    def process(self, batch):
        return batch

class Meets(Reduce):
    key, columns = "id", ("id",)

    def clear(self):
        pass

    def absorb(self, batch):
        pass

    def process(self, batch):
        return batch

rows = (read([{"id": "a"}]) >> Speaks() >> Meets()).collect(workers=1).num_rows
open("rows", "a").write(f"{rows}\\n")
"""


def python(code, tmp_path, **env):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path,
                          env={**{k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}, TOKEN: str(tmp_path), **env})
    assert done.returncode == 0, done.stderr
    wait_until(lambda: not orphans(str(tmp_path)))
    return done.stdout


def test_workers_have_the_environment_and_the_folder_of_the_run_and_come_from_a_process_with_one_thread(tmp_path):
    (tmp_path / "below").mkdir()
    said = python(RUN.format(between="os.environ['SAID'] = 'later \\udcff'; os.chdir('below')"), tmp_path)
    early, server, word, folder, threads, session, tasks, of_driver = json.loads(said)
    assert server == early == session
    assert (word, folder, threads, tasks, of_driver) == ("later \udcff", str(tmp_path / "below"), "1", 1, None)


def test_arrow_takes_all_memory_of_its_workers_from_the_system(tmp_path):
    """Also what its parts in C++ take of themselves, as to group rows."""
    assert python(GROUPS, tmp_path) == "0\n"


@pytest.mark.parametrize("threshold", ["0x100000", "much"])
def test_what_the_c_library_is_told_of_memory_in_other_words_ends_no_run(tmp_path, threshold):
    early, server, *_ = json.loads(python(RUN.format(between=""), tmp_path, MALLOC_TRIM_THRESHOLD_=threshold))
    assert server == early


def test_another_c_library_than_gnus_need_not_know_its_options(tmp_path):
    """As musl, of Alpine Linux."""
    other = ("import ctypes\nclass Other(ctypes.CDLL):\n    def __getattr__(self, name):\n"
             "        if name.startswith('mall'): raise AttributeError(name)\n"
             "        return super().__getattr__(name)\nctypes.CDLL = Other\n")
    early, server, *_ = json.loads(python(other + RUN.format(between=""), tmp_path))
    assert server == early


@pytest.mark.parametrize("between", ["os.kill(before.process.pid, 9); os.waitpid(before.process.pid, 0)",
                                     "os.environ.update({f'MANY{n}': 'x' * 50_000 for n in range(30)})"],
                         ids=["it was killed", "the environment is too large to be told"])
def test_where_it_cannot_be_used_a_new_process_takes_its_place(tmp_path, between):
    early, server, *_ = json.loads(python(RUN.format(between=between), tmp_path))
    assert server != early


@pytest.mark.parametrize("end", ["| true", ">&-", ">&- 2>&-"])
def test_where_nobody_reads_what_workers_say_each_ends_alone_and_goes_on_as_nobody_else(tmp_path, end):
    env = {k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS", "PYTHONUNBUFFERED")}
    subprocess.run(["sh", "-c", f'"$0" -c "$1" {end}', sys.executable, TWO_PHASES], cwd=tmp_path, check=True,
                   env={**env, TOKEN: str(tmp_path)})
    wait_until(lambda: not orphans(str(tmp_path)))
    assert (tmp_path / "rows").read_text() == "1\n"


def test_it_ends_with_a_program_that_never_wants_it(tmp_path):
    said = python("from curator.worker import fork_server; fork_server.fork_early(); print(fork_server.take_early().process.pid)", tmp_path)
    wait_until(lambda: not Path(f"/proc/{said.strip()}").exists())


def test_none_is_forked_from_a_process_that_may_have_threads(tmp_path):
    said = python("import numpy; from curator.worker import fork_server; fork_server.fork_early(); print(fork_server.take_early())",
                  tmp_path)
    assert said == "None\n"


def test_the_command_line_has_it(tmp_path):
    (tmp_path / "in.jsonl").write_text('{"id": "a", "text": "x"}\n')
    (tmp_path / "r.yaml").write_text("name: r\nread: {jsonl: {path: in.jsonl}}\nsteps: [drop: {none: text IS NULL}]\n"
                                     "write: {jsonl: {}}\n")
    assert python("import runpy, sys; from curator.worker.fork_server import Early\n"
                  "serve = Early.serve; Early.serve = lambda *told: [serve(*told), print('served')][0]\n"
                  "sys.argv = ['curator', 'run', 'r.yaml', '--out', 'out', '--quiet']\n"
                  "runpy.run_module('curator', run_name='__main__')", tmp_path) == "served\n"
    assert list((tmp_path / "out" / "data").rglob("*.jsonl*"))
