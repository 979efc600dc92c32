"""A job on text-dedup's MinHash. The variant `verified` has it compare all pairs of each cluster (check_false_positive)."""

from __future__ import annotations

import pickle
from importlib.metadata import version
from pathlib import Path

import common


def config(job: common.Job):
    """Its settings, which it takes from a TOML file only."""
    from text_dedup.config.base import load_config_from_toml

    bands = f"bands = {job.bands}\nrows = {job.rows}" if job.bands else ""
    path = Path(job.place, "config.toml")
    path.write_text(f"""
[input]
input_type = "local_files"
file_type = "json"
[input.read_arguments]
path = "json"
split = "train"
cache_dir = "{job.place}/cache"
data_files = {sorted(map(str, Path(job.corpus).glob("*.jsonl")))!r}
[algorithm]
algorithm_name = "minhash"
text_column = "text"
num_proc = {job.workers}
num_perm = {job.hashes}
ngram_size = {job.words}
threshold = {job.threshold}
check_false_positive = {str(job.variant == "verified").lower()}
{bands}
[output]
output_dir = "{job.place}/out"
clean_cache = false
save_clusters = {str(job.clusters).lower()}
[debug]
""", encoding="utf-8")
    return load_config_from_toml(path)


def dedup(job: common.Job) -> dict:
    from text_dedup.minhash import main

    main(config(job))
    return {"version": version("text-dedup")}


def read(job: common.Job) -> dict:
    from datasets import load_from_disk

    ids = [r["id"] for r in common.records(sorted(Path(job.corpus).glob("*.jsonl")))]
    clusters = pickle.loads(Path(job.place, "out", "clusters.pickle").read_bytes())
    return {"kept": load_from_disk(f"{job.place}/out")["id"][:], "clusters": {ids[int(i)]: int(c) for i, c in clusters.items()}}


def signatures(job: common.Job) -> dict:
    embed = config(job).algorithm.get_embed_func()

    def work(documents: list[str]) -> None:
        for i, text in enumerate(documents):
            embed([text], [i])

    return common.per_second(work, common.texts(job, 500))


if __name__ == "__main__":
    common.main({"dedup": dedup, "read": read, "signatures": signatures})
