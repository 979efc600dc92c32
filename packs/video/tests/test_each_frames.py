"""The image pack's stages on frames of films, by `each`: from a recipe, on films made here."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from curator_image import Embed, Hash, Signals
from curator_video import Decode

from curator import Batch, ImageBatch, load
from curator.api.errors import ContractError
from curator.cli.main import main
from curator.stages import Each
from curator.testing import run_stage
from packs.image.tests.tiny_models import image, save_clip
from packs.video.tests.clips import clip, clips
from packs.video.tests.films import film

RECIPE = """
read: {video.files: {path: FOLDER}}
steps:
- video.decode: {fps: 5, thumbs: false}
- each:
    payload: frames
    as: pixels
    per_item: [timestamps]
    steps:
    - image.signals: {only: [brightness, megapixels]}
    - drop: {dark: brightness < 0.05}
    - image.hash: {kinds: [phash]}
      with: {batch_size: 4}
    gather:
      brightness: [mean, max]
      megapixels: first
      phash: {list: hashes}
      timestamps: {list: seen_s}
write: parquet
out: x
"""


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    """Two films of changing pictures; the second begins with a black second."""
    folder = tmp_path_factory.mktemp("films")
    black = np.zeros((96, 128, 3), np.uint8)
    (folder / "a.mp4").write_bytes(film([image(k // 5, 96, 128) for k in range(30)], 10))
    (folder / "b.mp4").write_bytes(film([black] * 10 + [image(k // 5, 96, 128) for k in range(30, 40)], 10))
    return folder


def alone(pictures) -> ImageBatch:
    """Pictures as records of their own, as image.decode gives them."""
    ids = list(map(str, range(len(pictures))))
    size = {name: pa.array([one.shape[axis] for one in pictures], pa.int32()) for axis, name in enumerate(("height", "width"))}
    return ImageBatch(pa.table({"id": ids, "source": ids, **size}), pixels=list(pictures))


def test_frames_are_measured_as_images_are(films, tmp_path):
    (tmp_path / "recipe.yaml").write_text(RECIPE.replace("FOLDER", str(films)))
    done = CliRunner().invoke(main, ["run", str(tmp_path / "recipe.yaml"), "--out", str(tmp_path / "out"), "--workers", "0"])
    assert done.exit_code == 0, done.output
    assert "25 items of frames, 20 gathered" in done.output
    rows = {row["source"].rpartition("/")[2]: row for row in pq.read_table(tmp_path / "out/data").to_pylist()}
    versions = json.loads((tmp_path / "out/_run/manifest.json").read_text())["versions"]
    assert {"curator-image", "curator-video"} <= versions.keys()
    told, = (one for one in json.loads((tmp_path / "out/_run/stats.json").read_text())["stages"] if one["name"] == "each")
    assert told["inner"]["drop"] == told["inner"]["drop"] | {"in": 25, "out": {"out": 20}, "dropped": {"dark": 5}}
    for name, first in (("a.mp4", 0), ("b.mp4", 5)):
        path = str(films / name)
        decoded = run_stage(Decode(fps=5, thumbs=False), Batch(pa.table({"id": ["x"], "source": [path], "path": [path]})))["out"]
        images = alone(decoded.frames[0][first:])
        light, row = run_stage(Signals(), images)["out"].column("brightness"), rows[name]
        assert (row["brightness_mean"], row["brightness_max"]) == pytest.approx((np.mean(light), max(light)))
        assert row["megapixels"] == pytest.approx(96 * 128 / 1e6)
        assert row["hashes"] == run_stage(Hash(), images)["out"].column("phash")
        assert row["seen_s"] == pytest.approx([(first + k) / 5 for k in range(len(images))])


def test_what_a_step_inside_lacks_is_told_before_anything_runs():
    with pytest.raises(ContractError, match=r"recipe:5: steps\[1\]\.each: stage 'each': stage 'each > signals' needs 'pixels'"):
        load(RECIPE.replace("as: pixels", "as: picture")).plan()


@pytest.mark.slow
def test_the_embedding_of_a_clip_is_the_mean_direction_of_those_of_its_frames(tmp_path):
    model = Embed(model=save_clip(tmp_path))
    pictures = [[image(seed) for seed in range(3)], [image(7)], [image(seed) for seed in range(20, 30)]]
    each = Each(payload="frames", as_="pixels", steps=[model], gather={"embedding": "mean"})
    assert each.resources == model.resources
    made = run_stage(each, clips(*(clip(one, every_s=1 / 25) for one in pictures)))["out"].column("embedding")
    for one, embedding in zip(pictures, made, strict=True):
        mean = np.mean(run_stage(model, alone(one))["out"].column("embedding"), axis=0)
        np.testing.assert_allclose(embedding, mean / np.linalg.norm(mean), atol=1e-3)
