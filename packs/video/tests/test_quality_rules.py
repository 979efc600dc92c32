"""The rule set for clips: each rule drops a clip made for it, and clips that only look like one stay."""

from __future__ import annotations

from pathlib import Path

import curator_video
import cv2
import numpy as np
import pyarrow as pa
import pytest
from curator_video.measures import motion, overlay, signals
from curator_video.measures.motion import Motion
from curator_video.measures.overlay import Overlay
from curator_video.measures.signals import Signals
from curator_video.read import probe

from curator.api.batch import Batch
from curator.registry import packs
from curator.stages.drop import Drop
from curator.stages.rules import load_rules
from curator.testing import run_stage
from packs.video.tests.clips import barred, clip, clips
from packs.video.tests.films import pan, texture

RULES = Path(curator_video.__file__).parent / "rules" / "quality.yaml"


def detailed(seed, height, width):
    """A texture with edges, as sharp as a photograph."""
    rng = np.random.default_rng(seed)
    soft = texture(seed, height, width).astype(int)
    blocks = cv2.resize(rng.integers(-30, 30, (height // 12, width // 12), np.int8).astype(np.float32), (width, height),
                        interpolation=cv2.INTER_NEAREST)
    return np.clip(soft + blocks[..., None].astype(int), 0, 255).astype(np.uint8)


WIDE = detailed(3, 252, 900)
GOOD = [np.ascontiguousarray(WIDE[:240, 3 * k : 3 * k + 320]) for k in range(75)]


def measured(batch):
    for stage in (Signals(), Motion(), Overlay()):
        batch = run_stage(stage, batch)["out"]
    return batch


def reasons(*given, fps=25.0):
    """Why each clip is dropped, None if it stays."""
    scored = measured(clips(*[clip(one, fps) for one in given]))
    dropped = Drop(rules=str(RULES)).process(scored)["dropped"]
    found = dict(zip(dropped.column("id"), dropped.column("reason"), strict=True))
    return [found.get(i) for i in scored.column("id")]


def level(value, count=12):
    return [np.full((240, 320, 3), value, np.uint8)] * count


def scaled(gain, offset=0.0):
    return [np.clip(one * gain + offset, 0, 255).astype(np.uint8) for one in GOOD]


def spotted(pictures, value):
    """With one small thing that is lighter or darker than all else."""
    made = [one.copy() for one in pictures]
    for one in made:
        one[100:128, 150:178] = value
    return made


def thrown(deviation):
    """A camera that stands, off its place by chance in each frame."""
    rng = np.random.default_rng(0)
    places = np.clip(rng.normal(0, deviation, (75, 2)), -6, 6)
    return [cv2.warpAffine(WIDE, np.float32([[1, 0, -300 - x], [0, 1, -6 - y]]), (320, 240)) for x, y in places]


def written(picture, lines):
    """With large letters over it."""
    made = picture.copy()
    for k, line in enumerate(lines):
        for colour, thick in (((0, 0, 0), 7), ((255, 255, 255), 3)):
            cv2.putText(made, line, (30, 90 + 60 * k), cv2.FONT_HERSHEY_SIMPLEX, 1.1, colour, thick, cv2.LINE_AA)
    return made


def walked():
    """Held in the hand: slow sway of some pixels."""
    at = np.arange(75) / 25
    return [cv2.warpAffine(WIDE, np.float32([[1, 0, -300 - 12 * np.sin(4 * t)], [0, 1, -6 - 4 * np.sin(7 * t)]]), (320, 240)) for t in at]


# Made when they are asked for: each of the processes that share the tests has this file.
BAD = {
    "black": lambda: GOOD[:60] + level(0, 15),
    "white": lambda: GOOD[:60] + level(255, 15),
    "underexposed": lambda: spotted(scaled(0.03), 200),
    "overexposed": lambda: spotted(scaled(0.3, 225), 30),
    "frozen": lambda: GOOD[:40] + [GOOD[39]] * 30 + GOOD[40:60],
    "still": lambda: [np.clip(GOOD[0] + np.random.default_rng(k).normal(0, 4, GOOD[0].shape), 0, 255).astype(np.uint8) for k in range(75)],
    "cuts": lambda: GOOD[:40] + pan(9, 40, 3),
    "low_rate": lambda: [GOOD[k // 2] for k in range(75)],
    "flicker": lambda: [np.clip(one * (0.75 + 0.1 * (-1) ** k), 0, 255).astype(np.uint8) for k, one in enumerate(GOOD)],
    "shaky": lambda: thrown(4.0),
    "blurred": lambda: [cv2.GaussianBlur(one, (0, 0), 4) for one in GOOD],
    "borders": lambda: [barred(one, rows=36) for one in GOOD],
    "text": lambda: [written(one, ("THIS IS WHAT", "LIES OVER IT")) for one in GOOD],
}


def test_the_set_is_whole():
    rules = load_rules(str(RULES))
    assert (rules.name, bool(rules.source), bool(rules.description)) == ("quality", True, True)
    assert all(rule.source for rule in rules.rules)
    assert [rule.reason for rule in rules.rules] == list(BAD)
    assert set(Drop(rules=str(RULES)).contract().needs) <= {*signals.COLUMNS, *motion.COLUMNS, *overlay.COLUMNS}
    assert Path(packs.resource("rules", "video/quality")).name == "quality.yaml"


@pytest.mark.parametrize("reason", BAD)
def test_each_rule_drops_what_it_is_for(reason):
    assert reasons(BAD[reason]()) == [reason]


def test_good_clips_pass():
    held = [GOOD[k - k % 10 if 30 <= k < 50 else k] for k in range(75)]  # a cartoon holds pictures for 0.4 s
    flash = GOOD[:30] + level(255, 1) + GOOD[31:]
    small = [barred(one, rows=28) for one in GOOD]
    assert reasons(GOOD, scaled(0.5), walked(), held, small, GOOD[::-1]) == [None] * 6
    assert reasons(flash) in ([None], ["flicker"])


def test_what_has_no_scores_stays():
    empty = clips(None)
    scored = measured(empty)
    assert len(Drop(rules=str(RULES)).process(scored)["out"]) == 1


STRICT = {"too_small": {"height": 360}, "low_bits": {"bit_rate": 400_000}, "low_fps": {"fps": 15.0}, "text": {"overlay_area": 0.03},
          "exposure": {"exposure_ratio": 0.2}, "grey": {"greyscale": True}, "borders": {"border_ratio": 0.2},
          "little_motion": {"motion_mean": 0.01}, "wild_motion": {"motion_mean": 0.8}}
FINE = {"width": 1280, "height": 720, "bit_rate": 2_000_000, "fps": 23.976, "overlay_area": 0.0, "exposure_ratio": 0.0, "greyscale": False,
        "border_ratio": 0.0, "motion_mean": 0.1}


def test_strict_rules_drop_what_they_name():
    path = str(RULES.with_name("strict.yaml"))
    rows = [FINE | change for change in ({}, dict.fromkeys(FINE), *STRICT.values())]
    ids = ["fine", "unknown", *STRICT]
    table = pa.Table.from_pylist(rows).append_column("id", pa.array(ids)).append_column("source", pa.array(ids))
    out = Drop(rules=path).process(Batch(table))
    assert out["out"].column("id") == ["fine", "unknown"]
    assert out["dropped"].column("reason") == list(STRICT) == [rule.reason for rule in load_rules(path).rules]
    known = {*signals.COLUMNS, *motion.COLUMNS, *overlay.COLUMNS, *probe.COLUMNS}
    assert set(Drop(rules=path).contract().needs) <= known
