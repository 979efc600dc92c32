"""The packaged rules on sources: each drops a film made for it, and a plain one stays."""

from __future__ import annotations

from pathlib import Path

import curator_video
import numpy as np
import pyarrow as pa
import pytest
from curator_video.read.probe import COLUMNS, Probe

from curator.stages.drop import Drop
from curator.stages.rules import load_rules
from curator.testing import run_stage
from packs.video.tests.films import film, films, pan

FILE = str(Path(curator_video.__file__).parent / "rules" / "source.yaml")
X264 = {"crf": "20", "preset": "ultrafast"}


def some_of(percent):
    """The first of the bytes of a film that says at its begin what it has."""
    whole = film(pan(1, 110, 2, 256, 320), 25, options=X264, container_options={"movflags": "faststart"})
    return whole[:len(whole) * percent // 100]


def reason(data):
    probed = run_stage(Probe(), films(data))["out"]
    dropped = Drop(rules=FILE).process(probed).get("dropped")
    return dropped.column("reason")[0] if dropped is not None and len(dropped) else None


def test_rules_name_their_source_and_read_what_probe_gives():
    rules = load_rules(FILE)
    assert (rules.name, bool(rules.source), all(rule.source for rule in rules.rules)) == ("source", True, True)
    assert set(Drop(rules=FILE).contract().needs) <= set(COLUMNS)


def test_a_plain_film_passes():
    assert reason(film(pan(1, 60, 2, 256, 320), 25, options=X264)) is None
    assert reason(some_of(70)) is None


@pytest.mark.parametrize(("codec", "options", "least"), [
    ("libx264", X264, 0.02), ("libx265", {"crf": "28", "preset": "ultrafast", "x265-params": "log-level=none"}, 0.01),
    ("libsvtav1", {"crf": "40", "preset": "12"}, 0.01)])
def test_newer_codecs_may_have_half_the_bits(codec, options, least):
    probed = run_stage(Probe(), films(film(pan(1, 60, 2, 256, 320), 25, codec=codec, options=options)))["out"]
    for bpp, passes in ((least + 0.001, True), (least - 0.001, False)):
        answer = Drop(rules=FILE).process(probed.with_columns({"bpp": pa.array([bpp], pa.float32())}))
        assert len(answer["out"]) == passes
        assert passes or list(answer["dropped"].column("reason")) == ["low_bits"]


@pytest.mark.parametrize(("why", "made"), [
    ("single_frame", lambda: film(pan(1, 1, 0, 256, 320), options=X264)),
    ("too_short", lambda: film(pan(1, 49, 2, 256, 320), options=X264)),
    ("too_small", lambda: film(pan(1, 60, 2, 240, 320), options=X264)),
    ("low_fps", lambda: film(pan(1, 40, 2, 256, 320), 15, options=X264)),
    ("aspect", lambda: film(pan(1, 60, 2, 256, 1024), options=X264)),
    ("low_bits", lambda: film([np.full((256, 320, 3), 90, np.uint8)] * 60, options=X264)),
    ("broken", lambda: some_of(45)),
])
def test_each_rule_drops_what_it_is_for(why, made):
    assert reason(made()) == why
