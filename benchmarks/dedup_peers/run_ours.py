"""A job on Curator: `text.minhash >> dedup.near`. Variants: `exact` verifies with the shingles themselves, `components` merges
whole chains (radius: null). Without bands the stage chooses them.
"""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import common
import pyarrow as pa
import pyarrow.dataset as ds


def shingle(job: common.Job) -> str:
    return f"{job.chars} chars" if job.chars else f"{job.words} words"


def recipe(job: common.Job) -> dict:
    """Survivors as the peers write them, so uncompressed and without the signatures."""
    minhash = {"shingle": shingle(job), "hashes": job.hashes}
    near = {"threshold": job.threshold, "keep": "longest"}
    if job.bands:
        near |= {"bands": job.bands, "rows": job.rows}
    if job.variant == "exact":
        minhash["shingles"], near["verify"] = "shingles", "exact"
    if job.variant == "components":
        near["radius"] = None
    made = ["minhash", *(["shingles"] if job.variant == "exact" else [])]
    return {"read": {"jsonl": {"path": f"{job.corpus}/*.jsonl"}},
            "steps": [{"text.minhash": minhash}, {"dedup.near": near}, {"select": {"drop": made}}],
            "write": {"jsonl": {"compression": None}}, "out": f"{job.place}/out"}


def dedup(job: common.Job) -> dict:
    import yaml

    from curator.front import load

    path = Path(job.place, "recipe.yaml")
    path.write_text(yaml.safe_dump(recipe(job), sort_keys=False), encoding="utf-8")
    result = load(path).run(workers=job.workers)
    if not result.ok:
        raise SystemExit(str(result.stats["message"]))
    return {"version": version("curator-core"), "records": dict(result.records)}


def read(job: common.Job) -> dict:
    out = Path(job.place, "out")
    kept = [r["id"] for r in common.records(sorted(out.glob("data/*.jsonl")))]
    removed = sorted((out / "duplicate" / "dedup.near").glob("*.parquet"))
    columns = ["id", "duplicate_of"]
    table = ds.dataset(removed).to_table(columns).to_pydict() if removed else dict.fromkeys(columns, ())
    clusters = dict(zip(*(table[c] for c in columns), strict=True))
    return {"kept": kept, "clusters": clusters | {name: name for name in set(clusters.values())}}


def signatures(job: common.Job) -> dict:
    from curator.api.stage import Context
    from curator.api.tasks import TextBatch
    from curator.registry.packs import stage_class

    stage = stage_class("text.minhash")(shingle=shingle(job), hashes=job.hashes)
    stage.setup(Context())

    def work(documents: list[str]) -> None:
        for start in range(0, len(documents), 500):
            part = documents[start:start + 500]
            ids = [str(i) for i in range(len(part))]
            stage.process(TextBatch(rows=pa.table({"id": ids, "source": [""] * len(part), "text": part})))

    return common.per_second(work, common.texts(job))


if __name__ == "__main__":
    common.main({"dedup": dedup, "read": read, "signatures": signatures})
