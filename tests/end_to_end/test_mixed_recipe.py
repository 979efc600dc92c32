"""A mixed pipeline is only a recipe: captions by stages of the text pack, images by those of the image pack."""

from __future__ import annotations

import csv
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from curator.cli.main import main

CAPTIONS = {"a.jpg": "A red boat lies in the old harbour and waits for the morning tide.",
            "b.jpg": "boat",
            "c.jpg": "BUY CHEAP WATCHES HERE NOW AND ONLY HERE",
            "d.jpg": "Two children build a small tower of sand on the beach in the evening.",
            "gone.jpg": "The director of the museum stands before the new collection of stamps."}


def test_captions_and_images_are_judged_in_one_recipe(tmp_path):
    for needed in ("transformers", "curator_image", "curator_text"):
        pytest.importorskip(needed)
    from PIL import Image

    from packs.image.tests.signal_images import photo
    from packs.image.tests.tiny_models import save_clip

    for number, name in enumerate(CAPTIONS):
        if name != "gone.jpg":
            Image.fromarray(np.ascontiguousarray(photo(240, 320, seed=number))).save(tmp_path / name)
    with (tmp_path / "manifest.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("url", "caption"), *CAPTIONS.items()])
    clip, out = save_clip(tmp_path / "clip"), tmp_path / "out"
    done = CliRunner().invoke(main, [
        "run", "image/caption-align", "--out", str(out), "--workers", "0",
        "--set", f"read={{csv: {{path: {tmp_path}/manifest.csv}}}}", "--set", f"steps.fetch.root={tmp_path}",
        "--set", f"steps.image.alignment.model={clip}", "--set", "steps.alignment_rule.unrelated=alignment < -1"])
    assert done.exit_code == 0, done.output
    records = json.loads((out / "_run/stats.json").read_text())["records"]
    assert (records["in"], records["written"], records["dropped"], records["failed"]) == (5, 2, 3, 0)
    dropped = {row["url"]: row["reason"] for path in out.glob("dropped/*/*.parquet") for row in pq.read_table(path).to_pylist()}
    assert dropped == {"b.jpg": "short_caption", "c.jpg": "shouting", "gone.jpg": "not_found"}
    rows = [row for path in (out / "data").glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    assert {row["url"]: row["caption"] for row in rows} == {name: CAPTIONS[name] for name in ("a.jpg", "d.jpg")}
    assert all(row["language"] == "en" and -1 <= row["alignment"] <= 1 for row in rows)
