"""The packaged recipes, run as a user runs them, on images made here."""

from __future__ import annotations

import io
import json
import tarfile

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from PIL import Image

from curator.cli.main import main
from packs.image.tests.signal_images import flat, photo
from packs.image.tests.tiny_models import save_clip, save_vit

PHOTOS = 6


def saved(path, pixels, kind="JPEG", **options):
    Image.fromarray(pixels).save(path, kind, **options)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Six photos, copies of two of them in all ways and formats, a blank one, a page that is no image, and a cut file."""
    folder = tmp_path_factory.mktemp("photos")
    for number in range(PHOTOS):
        saved(folder / f"p{number}.jpg", photo(300, 400, seed=number), quality=92)
    first, second = photo(300, 400, seed=0), photo(300, 400, seed=1)
    saved(folder / "resized.webp", cv2.resize(first, (200, 150), interpolation=cv2.INTER_AREA), "WEBP", quality=80)
    saved(folder / "grey.tiff", cv2.cvtColor(first, cv2.COLOR_RGB2GRAY), "TIFF")
    saved(folder / "again.svg", first, quality=40)
    saved(folder / "alpha.png", np.dstack([second, np.full((300, 400), 255, np.uint8)]), "PNG")
    saved(folder / "palette.gif", second, "GIF")
    saved(folder / "plain.bmp", second, "BMP")
    saved(folder / "white.jpg", flat(255, 300, 400))
    (folder / "page.jpg").write_text("<!DOCTYPE html><p>not found</p>")
    (folder / "cut.jpg").write_bytes((folder / "p3.jpg").read_bytes()[:9000])
    return folder


def run(out, *words):
    done = CliRunner().invoke(main, ["run", *words, "--out", str(out), "--workers", "0"])
    assert done.exit_code == 0, done.output
    records = json.loads((out / "_run/stats.json").read_text())["records"]
    return {name: records[name] for name in ("in", "written", "dropped", "duplicate", "failed")}


def table(folder):
    return pa.concat_tables([pq.read_table(path) for path in sorted(folder.glob("*.parquet"))], promote_options="permissive")


def samples(out):
    """{key: {ending: content}} of all shards."""
    found: dict[str, dict[str, bytes]] = {}
    for path in sorted((out / "data").glob("*.tar")):
        with tarfile.open(path) as archive:
            for member in archive:
                key, _, ending = member.name.partition(".")
                found.setdefault(key, {})[ending] = archive.extractfile(member).read()
    return found


def names(rows):
    return {source.rpartition("/")[2] for source in rows.column("source").to_pylist()}


def test_quality_makes_shards_and_accounts_for_the_rest(photos, tmp_path):
    out = tmp_path / "out"
    counts = run(out, "image/quality", "--set", f"read.path={photos}/**/*", "--set", "max_failed=0.5")
    assert counts == {"in": PHOTOS + 9, "written": PHOTOS, "dropped": 1, "duplicate": 6, "failed": 2}
    assert names(table(out / "dropped/quality")) == {"white.jpg"}
    assert table(out / "dropped/quality").column("reason").to_pylist() == ["blank"]
    assert names(table(out / "duplicate/dedup.near")) == {"resized.webp", "grey.tiff", "again.svg", "alpha.png", "palette.gif",
                                                          "plain.bmp"}
    errors = dict(zip(names(table(out / "failed/decode")), sorted(table(out / "failed/decode").column("error").to_pylist()),
                      strict=True))
    assert set(errors) == {"page.jpg", "cut.jpg"}
    assert [error.split(":")[0] for error in sorted(errors.values())] == ["not an image (looks like HTML)", "truncated JPEG"]


def test_shards_hold_the_files_and_parquet_all_about_them(photos, tmp_path):
    run(tmp_path, "image/quality", "--set", f"read.path={photos}/p[0-9].jpg")
    rows = {row["key"]: row for row in table(tmp_path / "data").to_pylist()}
    shards = samples(tmp_path)
    assert list(shards) == list(rows)
    for key, parts in shards.items():
        row = rows[key]
        assert set(parts) == {"jpg", "json"}
        assert parts["jpg"] == (photos / row["source"].rpartition("/")[2]).read_bytes()
        assert json.loads(parts["json"])["sharpness"] == pytest.approx(row["sharpness"])
        assert max(Image.open(io.BytesIO(row["thumbnail"])).size) == 256
        assert (row["width"], row["height"], row["format"], len(row["phash"])) == (400, 300, "jpeg", 8)


def test_a_second_run_does_what_is_new(photos, tmp_path):
    inputs, out = tmp_path / "in", tmp_path / "out"
    inputs.mkdir()
    for number in (2, 3):
        (inputs / f"p{number}.jpg").write_bytes((photos / f"p{number}.jpg").read_bytes())
    assert run(out, "image/quality", "--set", f"read.path={inputs}")["written"] == 2
    before = samples(out)
    assert run(out, "image/quality", "--set", f"read.path={inputs}")["written"] == 2
    assert samples(out) == before
    (inputs / "p4.jpg").write_bytes((photos / "p4.jpg").read_bytes())
    assert run(out, "image/quality", "--set", f"read.path={inputs}") == {
        "in": 3, "written": 3, "dropped": 0, "duplicate": 0, "failed": 0}
    assert set(samples(out)) > set(before)


def test_mirrored_copies_are_found_on_request(photos, tmp_path):
    inputs = tmp_path / "in"
    inputs.mkdir()
    for number in (0, 1):
        saved(inputs / f"p{number}.jpg", photo(300, 400, seed=number))
    saved(inputs / "mirrored.jpg", np.ascontiguousarray(photo(300, 400, seed=0)[:, ::-1]))
    path = ("--set", f"read.path={inputs}")
    assert run(tmp_path / "plain", "image/quality", *path)["duplicate"] == 0
    assert run(tmp_path / "asked", "image/quality", *path, "--set", "steps.image.hash.variants=flips",
               "--set", "steps.dedup.near.hashes=2")["duplicate"] == 1


def test_aesthetic_nsfw_dedup_on_small_models(photos, tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file

    shards, out = tmp_path / "shards", tmp_path / "out"
    run(shards, "image/quality", "--set", f"read.path={photos}/p[0-9].jpg")
    clip, vit = save_clip(tmp_path / "clip"), save_vit(tmp_path / "vit", ("normal", "nsfw"))
    torch.manual_seed(0)
    save_file(torch.nn.Linear(24, 1).state_dict(), tmp_path / "head.safetensors")
    counts = run(out, "image/aesthetic-nsfw-dedup", "--set", f"read.path={shards}/data/*.tar",
                 "--set", f"steps.image.embed.model={clip}", "--set", f"steps.image.nsfw.model={vit}",
                 "--set", f"steps.image.aesthetic.weights={tmp_path / 'head.safetensors'}",
                 "--set", "steps.nsfw_rule.nsfw=nsfw_score >= 0.999", "--set", "steps.aesthetic_rule.plain=aesthetic < -9")
    assert counts["in"] == PHOTOS == counts["written"] + counts["duplicate"]
    rows = table(out / "data").to_pylist()
    assert all(0 <= row["nsfw_score"] <= 1 and row["aesthetic"] is not None for row in rows)
    assert {len(row["embedding"]) for row in rows} == {24}
    assert all(parts["jpg"].startswith(b"\xff\xd8") for parts in samples(out).values())


def test_a_payload_that_is_missing_names_the_stage_that_makes_it(photos, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    read, write = f"read: {{image.files: {{path: {photos}}}}}", "write: {parquet: {path: out}}"
    recipe.write_text(f"name: x\n{read}\nsteps: [image.signals]\n{write}\n")
    told = CliRunner().invoke(main, ["plan", str(recipe)])
    assert told.exit_code != 0
    assert "needs 'pixels', which nothing before it makes; image.decode adds it; there are bytes, " in told.output


def test_the_scores_are_explained_on_the_command_line():
    told = CliRunner().invoke(main, ["stages", "image.signals"]).output
    assert "variance of the" in told
    assert "Pech-Pacheco" in told
