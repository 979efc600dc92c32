"""A job on datatrove: its four MinHash stages. It does not verify: who shares a band is a duplicate, and so are whole chains."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import common
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers.jsonl import JsonlWriter


def config(job: common.Job) -> MinhashConfig:
    return MinhashConfig(n_grams=job.words, num_buckets=job.bands, hashes_per_bucket=job.rows)


def dedup(job: common.Job) -> dict:
    place, own = job.place, config(job)
    reader = JsonlReader(job.corpus, glob_pattern="*.jsonl")
    files = len(list(Path(job.corpus).glob("*.jsonl")))

    def run(pipeline: list, tasks: int, name: str) -> None:
        LocalPipelineExecutor(pipeline, tasks=tasks, workers=min(tasks, job.workers), logging_dir=f"{place}/logs/{name}").run()

    run([reader, MinhashDedupSignature(f"{place}/signatures", own)], files, "signatures")
    run([MinhashDedupBuckets(f"{place}/signatures", f"{place}/buckets", config=own)], job.bands, "buckets")
    cluster = MinhashDedupCluster(f"{place}/buckets", f"{place}/clusters", own, save_cluster_id=job.clusters)
    run([cluster], 1, "clusters")
    removed = JsonlWriter(f"{place}/removed", compression=None) if job.clusters else None
    keep = MinhashDedupFilter(f"{place}/clusters", exclusion_writer=removed, load_cluster_ids=job.clusters)
    run([reader, keep, JsonlWriter(f"{place}/out", compression=None)], files, "filter")
    return {"version": version("datatrove")}


def read(job: common.Job) -> dict:
    kept = common.records(sorted(Path(job.place, "out").glob("*.jsonl")))
    removed = common.records(sorted(Path(job.place, "removed").glob("*.jsonl")))
    clusters = {r["id"]: r["metadata"].get("minhash_cluster_id", -1) for r in kept + removed}
    return {"kept": [r["id"] for r in kept], "clusters": {i: c for i, c in clusters.items() if c >= 0}}


def signatures(job: common.Job) -> dict:
    step = MinhashDedupSignature(f"{job.place}/signatures", config(job))

    def work(documents: list[str]) -> None:
        for text in documents:
            step.get_signature(step.get_shingles(text))

    return common.per_second(work, common.texts(job, 500))


if __name__ == "__main__":
    common.main({"dedup": dedup, "read": read, "signatures": signatures})
