"""A job on Curator, and on PyAV alone.

`shots`, `scdet` and `bare` answer with `frames`, `cpu_s` (processor time, the best of three rounds that take turns) and `cuts`, by
film the frames with which shots begin. `split` runs the packaged recipe; `copy` cuts clips without encoding.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import common

ROUNDS = 3
RATE = 25  # pictures a second of the films


def decoded(path: str) -> Iterator[Any]:
    """The pictures of a film by PyAV, in one thread."""
    import av

    with av.open(path) as file:
        stream = file.streams.video[0]
        stream.thread_type = "NONE"
        stream.codec_context.thread_count = 1
        yield from file.decode(stream)


def of_bare(path: str) -> tuple[int, list[int]]:
    return sum(1 for _ in decoded(path)), []


def of_reading(path: str) -> tuple[int, list[int]]:
    from curator_video.read.film import Film

    with Film(path) as film:
        return sum(1 for _, frame in film.frames() if film.thumb(frame) is not None), []


def of_shots(path: str) -> tuple[int, list[int]]:
    import pyarrow as pa
    from curator_video.shots.shots import Shots

    from curator.api.batch import Batch
    from curator.api.stage import Context

    stage = Shots()
    stage.setup(Context())
    batch = Batch(rows=pa.table({"id": [path], "source": [path], "path": [path]}))
    row = stage.process(batch)["out"].rows.to_pylist()[0]
    return round(row["shots"][-1]["end"] * RATE), [round(one["start"] * RATE) for one in row["shots"][1:]]


def of_scdet(path: str) -> tuple[int, list[int]]:
    """FFmpeg's filter at its own threshold, as PyAV runs it."""
    import av
    from av.filter import Graph

    graph: Any = None
    frames, cuts = 0, []
    for frame in decoded(path):
        if graph is None:
            graph = Graph()
            ends = [graph.add_buffer(width=frame.width, height=frame.height, format=frame.format, time_base=frame.time_base),
                    graph.add("scdet", "threshold=10"), graph.add("buffersink")]
            graph.link_nodes(*ends).configure()
        graph.push(frame)
        while True:
            try:
                made = graph.pull()
            except (av.error.BlockingIOError, av.error.EOFError):
                break
            frames += 1
            if "lavfi.scd.time" in made.metadata:
                cuts.append(frames - 1)
    return frames, cuts


WAYS: dict[str, Callable[[str], tuple[int, list[int]]]] = {
    "bare": of_bare, "thumbs": of_reading, "shots": of_shots, "scdet": of_scdet}


def detect(job: common.Job) -> dict[str, Any]:
    """Each way over all films, in turn, the best of some rounds."""
    found: dict[str, dict[str, Any]] = {}
    for _ in range(ROUNDS):
        for name, way in WAYS.items():
            began = time.process_time()
            told = [way(path) for path in job.paths]
            cpu_s = time.process_time() - began
            if name not in found or cpu_s < found[name]["cpu_s"]:
                found[name] = {"frames": sum(frames for frames, _ in told), "cpu_s": cpu_s,
                               "cuts": {Path(path).name: cuts for path, (_, cuts) in zip(job.paths, told, strict=True)}}
    return found


def bare(job: common.Job) -> dict[str, Any]:
    """Decoding alone, by as many processes as there are workers."""
    from multiprocessing import Pool

    with Pool(job.workers) as pool:
        return {"frames": sum(frames for frames, _ in pool.imap_unordered(of_bare, job.paths))}


def stages(job: common.Job) -> dict[str, Any]:
    """The stages of `video/split` that look at films and clips one after the other, and decoding alone: processor time of each over all
    films, the best of some rounds."""
    import pyarrow as pa

    from curator.api.batch import Batch
    from curator.api.stage import Context
    from curator.front import load
    from curator.run.folder.shards import planned

    wanted = ("probe", "clips", "signals", "motion", "overlay", "hash", "preview", "cut")
    plan = planned(load("video/split", {"read.path": job.films, "out": f"{job.place}/out"}), "stream", None)
    found = {step.name: step.stage for phase in plan.phases for step in phase.steps if step.name in wanted}
    for stage in found.values():
        stage.setup(Context())
    best: dict[str, float] = {}
    frames = 0
    for _ in range(ROUNDS):
        began = time.process_time()
        frames = sum(of_bare(path)[0] for path in job.paths)
        spent = {"bare": time.process_time() - began}
        batches = [Batch(rows=pa.table({"id": job.paths, "source": job.paths, "path": job.paths}))]
        for name in wanted:
            began = time.process_time()
            batches = [made for batch in batches for made in passed(found[name], batch)]
            spent[name] = time.process_time() - began
        best = {name: min(seconds, best.get(name, seconds)) for name, seconds in spent.items()}
    return {"frames": frames, "cpu_s_of": best}


def passed(stage: Any, batch: Any) -> Iterator[Any]:
    """What a stage gives of a batch on `out`, in batches of its size."""
    size = stage.batch_size or len(batch)
    for first in range(0, len(batch), size):
        made = stage.process(batch.take(list(range(first, min(first + size, len(batch))))))
        for outputs in made if isinstance(made, Iterator) else [made]:
            out = outputs if hasattr(outputs, "rows") else outputs.get("out")
            if out is not None and len(out):
                yield out


def split(job: common.Job) -> dict[str, Any]:
    import pyarrow.dataset as ds

    from curator.front import load

    began = time.monotonic()
    result = load("video/split", {"read.path": job.films, "out": f"{job.place}/out"}).run(workers=job.workers)
    if not result.ok or result.records["failed"]:
        raise SystemExit(str(result.stats["message"]) or f"{result.records['failed']} failed")
    columns = ["source", "start_s", "end_s", "cut_method"]
    rows = ds.dataset(sorted(map(str, Path(job.place, "out", "data").rglob("*.parquet")))).to_table(columns=columns).to_pylist()
    spans = [[Path(row["source"]).name, round(row["start_s"] * RATE), round(row["end_s"] * RATE)] for row in rows]
    return {"run_s": time.monotonic() - began, "records": dict(result.records), "spans": spans,
            "methods": {name: sum(row["cut_method"] == name for row in rows) for name in ("keyframe", "edit_list", "exact")},
            "busy_s": {stage["name"]: stage["busy_s"] for stage in result.stats["stages"]}}


def copy(job: common.Job) -> dict[str, Any]:
    """Each film cut into clips at its cuts, by packets only; and its bytes copied by the system to the same disk."""
    import pyarrow as pa
    from curator_video.clips.cut import Cut

    from curator.api.batch import Batch
    from curator.api.stage import Context

    truth = json.loads(Path(f"{job.films}-truth.json").read_text())
    stage = Cut()
    stage.setup(Context())
    made = {"clips": 0, "bytes": 0, "cut_s": 0.0, "plain_s": 0.0, "encoded": 0}
    for path in job.paths:
        ends = [0, *truth[Path(path).name], truth[Path(path).name][-1] + 75]
        count = len(ends) - 1
        batch = Batch(rows=pa.table({"id": [f"{k}" for k in range(count)], "source": [path] * count, "path": [path] * count,
                                     "start_s": [at / RATE for at in ends[:-1]], "end_s": [at / RATE for at in ends[1:]]}))
        began = time.monotonic()
        for outputs in stage.process(batch):
            for row in outputs["out"].rows.select(["id", "bytes", "cut_method"]).to_pylist():
                Path(job.place, row["id"] + ".mp4").write_bytes(row["bytes"])
                made["clips"] += 1
                made["bytes"] += len(row["bytes"])
                made["encoded"] += row["cut_method"] == "exact"
        made["cut_s"] += time.monotonic() - began
        began = time.monotonic()
        shutil.copyfile(path, Path(job.place, "whole.mp4"))
        made["plain_s"] += time.monotonic() - began
    return made


if __name__ == "__main__":
    common.main({"detect": detect, "bare": bare, "stages": stages, "split": split, "copy": copy})
