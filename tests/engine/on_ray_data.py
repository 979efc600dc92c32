"""A plugin of pytest, `-p tests.engine.on_ray_data`: what a test runs is run as by `--engine ray-data`. All that Ray is given is
done in this process, or with `ON_RAY_DATA=cluster` by Ray Data on one cluster for all tests."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from functools import wraps

import cloudpickle
import pytest

from curator.run import run as runs

pytest.importorskip("ray.data")
from curator.run.raydata import loop as ray_data
from curator.run.raydata.notes import Notes
from curator.run.raydata.work import from_rows, grouped, shared_out, to_row
from curator.run.raydata.worker import Group

ran: list[str] = []  # the pipelines that were run so


class Inline:
    """In place of an `Execution`: the groups in this process, and every row travels."""

    def __init__(self, operators, works, short_circuits, sidecars, restored, cores):
        notes, self.ended, self.found = Notes(short_circuits), False, []
        groups = [Group(cloudpickle.loads(cloudpickle.dumps(group)), sidecars, restored, notes, str(number), "node")
                  for number, group in enumerate(grouped(operators))]
        for row in shared_out(works, 2):
            for group in groups:
                (row,) = from_rows(to_row(row))
                group.work(row)
            self.found += row

    def wait(self, timeout):
        self.ended = True
        return self.found

    def stop(self):
        pass

    def close(self, patience_s):
        pass


def inline(patch):
    patch.setattr(ray_data, "Execution", Inline)
    patch.setattr(ray_data, "connect", lambda *words: lambda: None)


@contextmanager
def cluster_here(**resources):
    """A cluster of one node of two cores, to which this process is connected."""
    import ray

    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="cur_ray_", dir="/tmp") as folder:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR",
                 object_store_memory=300 << 20, _temp_dir=folder, **resources)
        ray.data.DataContext.get_current().enable_progress_bars = False
        yield
        ray.shutdown()


@pytest.fixture(scope="session")
def on_ray_data():
    ours = runs.run

    @wraps(ours)
    def theirs(pipeline, *, workers=None, **options):
        if options.get("replay") is not None:
            return ours(pipeline, workers=workers, **options)
        ran.append(pipeline.name)
        return ours(pipeline, **options | {"engine": "ray-data"})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "run", theirs)
        if os.environ.get("ON_RAY_DATA") == "cluster":
            with cluster_here():
                yield
        else:
            inline(patch)
            yield


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        item.fixturenames.insert(0, "on_ray_data")


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"{len(ran)} runs as on Ray Data, of {len(set(ran))} pipelines: {', '.join(sorted(set(ran)))}")
