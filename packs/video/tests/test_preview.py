"""Contact sheets and animations: what is on them, how large, and null where there is nothing to show."""

from __future__ import annotations

import io

import numpy as np
import pytest
from curator_video.clips.pictures import clock, spread
from curator_video.clips.preview import Preview
from PIL import Image

from curator.testing import check_stage, run_stage
from packs.video.tests.clips import clip, clips
from packs.video.tests.films import pan

SHADES = np.stack([np.full((90, 160, 3), level, np.uint8) for level in range(10, 250, 10)])  # 24, one a second
GIVEN = {"frames": SHADES, "timestamps": np.arange(24.0)}


def opened(data):
    return Image.open(io.BytesIO(data))


def shown(picture):
    """Each picture of an animation as (mean level, milliseconds)."""
    found = []
    for k in range(picture.n_frames):
        picture.seek(k)
        picture.load()
        found.append((np.asarray(picture.convert("RGB")).mean(), picture.info["duration"]))
    return found


def test_a_sheet_has_the_pictures_in_rows():
    sheet = opened(run_stage(Preview(), clips(GIVEN))["out"].column("sheet")[0])
    assert (sheet.format, sheet.size) == ("JPEG", (4 * 162 - 2, 3 * 92 - 2))
    pixels = np.asarray(sheet)
    middles = [pixels[92 * (k // 4) + 30, 162 * (k % 4) + 80].mean() for k in range(12)]
    assert middles == pytest.approx([10 + 20 * k for k in range(12)], abs=4)
    assert pixels[75:90, 2:40].max() > 200  # the time, in white
    assert pixels[:60, :160].max() < 40


def test_an_animation_shows_the_same_pictures_for_ever():
    picture = opened(run_stage(Preview(), clips(GIVEN))["out"].column("preview")[0])
    assert (picture.format, picture.size, picture.n_frames, picture.info["loop"]) == ("WEBP", (160, 90), 12, 0)
    levels, milliseconds = zip(*shown(picture), strict=True)
    assert levels == pytest.approx([10 + 20 * k for k in range(12)], abs=4)
    assert milliseconds == (500,) * 12


def test_an_animation_has_pictures_a_second_apart():
    given = {"frames": SHADES[::4], "timestamps": np.array([7.0, 7.5, 8.0, 8.9, 9.0, 10.2])}
    picture = opened(run_stage(Preview(kinds=["preview"]), clips(given))["out"].column("preview")[0])
    levels, milliseconds = zip(*shown(picture), strict=True)
    assert levels == pytest.approx([10, 90, 170, 210], abs=4)
    assert milliseconds == (500,) * 4


@pytest.mark.parametrize(("count", "size"), [(1, (160, 90)), (3, (484, 90)), (5, (646, 182))])
def test_few_pictures_make_a_small_sheet(count, size):
    given = {"frames": SHADES[:count], "timestamps": np.arange(count) / 2}
    out = run_stage(Preview(), clips(given))["out"]
    assert opened(out.column("sheet")[0]).size == size
    assert opened(out.column("preview")[0]).n_frames == -(-count // 2)


def test_where_a_sheet_has_no_picture_it_is_grey_on_light_pages_and_on_dark_ones():
    given = {"frames": SHADES[:5], "timestamps": np.arange(5) / 2}
    pixels = np.asarray(opened(run_stage(Preview(), clips(given))["out"].column("sheet")[0]))
    assert pixels[100:, 170:] == pytest.approx(128, abs=4)


def test_sizes():
    tall = {"frames": np.zeros((2, 640, 361, 3), np.uint8), "timestamps": np.arange(2) / 2}
    out = run_stage(Preview(size=100, columns=1), clips(tall, {"frames": SHADES[:2, :30, :41], "timestamps": np.arange(2) / 2}))["out"]
    assert [opened(one).size for one in out.column("preview")] == [(56, 100), (41, 30)]
    assert [opened(one).size for one in out.column("sheet")] == [(56, 202), (41, 62)]


def test_pictures_are_spread_from_end_to_end():
    assert spread(SHADES, np.arange(24.0), 4, 160)[1] == [2.0, 8.0, 14.0, 20.0]
    assert spread(SHADES, np.arange(24.0), 50, 160)[1] == list(range(24))


def test_clock():
    assert [clock(s) for s in (0, 9.96, 62.04, 3725.25)] == ["0:00.0", "0:10.0", "1:02.0", "1:02:05.2"]


def test_the_report_has_room_for_both():
    moving = clip(pan(3, 300, 4))
    out = run_stage(Preview(), clips(moving))["out"]
    assert max(len(out.column(kind)[0]) for kind in ("sheet", "preview")) < 48 << 10
    assert Preview(kinds=["sheet"]).example_columns() == {"sheet": "image"}


def test_the_stage_keeps_its_contract():
    batch = clips(GIVEN, None, clip(pan(1, 30, 3)), {"frames": SHADES[:0], "timestamps": np.zeros(0)})
    check_stage(Preview(), batch)
    check_stage(Preview(kinds=["sheet"], pictures=3, columns=2, size=64, quality=30), batch)


@pytest.mark.parametrize(("wrong", "message"), [({"kinds": ["gif"]}, "kinds lists some"), ({"kinds": []}, "kinds lists some"),
                                                ({"pictures": 0}, "pictures is 1"), ({"size": 4}, "size is 16"),
                                                ({"quality": 101}, "quality is 1"), ({"columns": 0}, "columns is 1")])
def test_wrong_parameters(wrong, message):
    with pytest.raises(ValueError, match=message):
        Preview(**wrong)
