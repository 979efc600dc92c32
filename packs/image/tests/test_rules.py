"""The packaged rule sets: each rule drops a picture made for it, and pictures that only look like one stay."""

from __future__ import annotations

from pathlib import Path

import curator_image
import numpy as np
import pyarrow as pa
import pytest
from curator_image.signals import COLUMNS, Signals

from curator.api.tasks import ImageBatch
from curator.registry import packs
from curator.stages.drop import Drop
from curator.stages.rules import load_rules
from curator.testing import run_stage
from packs.image.tests.image_batches import sized
from packs.image.tests.signal_images import as_jpeg, blurred, captioned, flat, framed, noisy, page, photo, texture, tiled

FOLDER = Path(curator_image.__file__).parent / "rules"
SETS = ("quality", "strict")
PHOTO = photo()


def reasons(names, *images, sizes=None):
    """Why each image is dropped by these rule sets, None if it stays. `sizes`: of the files, as (height, width)."""
    scored = run_stage(Signals(), sized(*images, sizes=sizes))["out"]
    dropped = Drop(rules=[str(FOLDER / f"{name}.yaml") for name in names]).process(scored)["dropped"]
    found = dict(zip(dropped.column("id"), dropped.column("reason"), strict=True))
    return [found.get(i) for i in scored.column("id")]


def sharp_at(image, height, width):
    """Sharp in a box in the middle, out of focus elsewhere: a portrait with a wide open lens."""
    top, left = (image.shape[0] - height) // 2, (image.shape[1] - width) // 2
    soft = blurred(image, 8)
    soft[top:top + height, left:left + width] = image[top:top + height, left:left + width]
    return soft


def on_white(share):
    """An object on a white background, with this share of the area."""
    image = flat(255)
    rows, columns = np.mgrid[:384, :512]
    inside = (rows - 192) ** 2 + (columns - 256) ** 2 < share * 384 * 512 / np.pi
    image[inside] = PHOTO[inside]
    return image


def test_the_rule_sets_are_the_files():
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(SETS)
    assert {load_rules(str(FOLDER / f"{name}.yaml")).name for name in SETS} == set(SETS)


@pytest.mark.parametrize("name", SETS)
def test_every_rule_names_its_source_and_reads_scores_only(name):
    rules = load_rules(str(FOLDER / f"{name}.yaml"))
    assert rules.source
    assert rules.description
    assert all(rule.source for rule in rules.rules)
    assert set(Drop(rules=str(FOLDER / f"{name}.yaml")).contract().needs) <= {*COLUMNS, "width", "height"}


def test_rule_sets_are_found_by_name_where_the_pack_is_installed():
    assert Path(packs.resource("rules", "image/quality")).name == "quality.yaml"


@pytest.mark.parametrize("seed", range(5))
def test_pictures_pass_all_rule_sets(seed):
    picture = photo(seed=seed)
    others = [as_jpeg(picture, 60), picture // 2, sharp_at(picture, 80, 80), on_white(0.25), framed(picture, 20, 20, 0, 0)]
    assert reasons(SETS, picture, *others) == [None] * 6


QUALITY = {
    "too_small": PHOTO[:149, :300],
    "extreme_aspect": PHOTO[:160, :].repeat(4, axis=1),
    "blank": noisy(flat(180), 1),
    "few_tones": (np.indices((384, 512)).sum(axis=0)[..., None] % 90 < 30) * np.uint8([255, 255, 255]),
    "underexposed": (PHOTO * 0.06).astype(np.uint8),
    "overexposed": np.clip(PHOTO * 8.0 + 180, 0, 255).astype(np.uint8),
    "blurred": blurred(PHOTO, 4),
    "borders": framed(PHOTO, 90, 90, 0, 0),
}


@pytest.mark.parametrize("reason", QUALITY)
def test_each_rule_of_quality_drops_what_it_is_for(reason):
    assert reasons(["quality"], QUALITY[reason]) == [reason]


def test_sizes_are_those_of_the_file_not_of_the_pixels():
    found = reasons(["quality"], PHOTO, PHOTO, PHOTO, sizes=[(100, 130), (16000, 21000), (15000, 20000)])
    assert found == ["too_small", "too_large", None]


@pytest.mark.parametrize("colour", [0, 255, 40])
def test_one_colour_is_blank_whichever_it_is(colour):
    assert reasons(["quality"], flat(colour)) == ["blank"]


STRICT = {
    "small": PHOTO[:199, :300],
    "noisy": noisy(texture().clip(60, 195), 18),
    "blocky": as_jpeg(texture(), 3),
    "page_of_text": page(),
    "caption": captioned(PHOTO // 2),
    "tiled_marks": tiled(PHOTO, 0.3),
}


@pytest.mark.parametrize("reason", STRICT)
def test_each_rule_of_strict_drops_what_it_is_for(reason):
    assert reasons(["strict"], STRICT[reason]) == [reason]


def test_strict_drops_flat_graphics():
    graphic = on_white(0.3)
    graphic[(graphic != 255).any(axis=2)] = (200, 30, 30)
    assert reasons(SETS, graphic) == ["few_tones"]
    graphic[100:280, 230:260] = (20, 20, 120)
    graphic[180:200, 180:320] = (90, 160, 90)
    assert reasons(SETS, graphic) == ["flat_graphic"]


def test_an_image_without_pixels_is_judged_by_its_size():
    rows = pa.table({"id": ["a", "b"], "source": ["x"] * 2, "width": pa.array([50, None], pa.int32()),
                     "height": pa.array([50, None], pa.int32())})
    scored = run_stage(Signals(), ImageBatch(rows=rows, pixels=[None, None]))["out"]
    parts = Drop(rules=str(FOLDER / "quality.yaml")).process(scored)
    assert (parts["dropped"].column("id"), parts["out"].column("id")) == (["a"], ["b"])
