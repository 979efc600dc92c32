"""A job on imagededup: `PHash().encode_images` with its own pool of processes, as its README shows it."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import common


def hashes(job: common.Job) -> dict:
    from imagededup.methods import PHash

    found = PHash(verbose=False).encode_images(image_dir=job.images, num_enc_workers=job.workers)
    Path(job.place, "hashes.json").write_text(json.dumps(found), encoding="utf-8")
    return {"version": version("imagededup"), "images": len(found)}


if __name__ == "__main__":
    common.main({"hash": hashes})
