"""The packaged rules on sources: each drops a film made for it, and a plain one stays."""

from __future__ import annotations

from pathlib import Path

import curator_video
import numpy as np
import pytest
from curator_video.read.probe import COLUMNS, Probe

from curator.stages.drop import Drop
from curator.stages.rules import load_rules
from curator.testing import run_stage
from packs.video.tests.films import film, films, pan

FILE = str(Path(curator_video.__file__).parent / "rules" / "source.yaml")
X264 = {"crf": "20", "preset": "ultrafast"}
PLAIN = film(pan(1, 60, 2, 256, 320), 25, options=X264)
HALF = film(pan(1, 110, 2, 256, 320), 25, options=X264, container_options={"movflags": "faststart"})


def reason(data):
    probed = run_stage(Probe(), films(data))["out"]
    dropped = Drop(rules=FILE).process(probed).get("dropped")
    return dropped.column("reason")[0] if dropped is not None and len(dropped) else None


def test_rules_name_their_source_and_read_what_probe_gives():
    rules = load_rules(FILE)
    assert (rules.name, bool(rules.source), all(rule.source for rule in rules.rules)) == ("source", True, True)
    assert set(Drop(rules=FILE).contract().needs) <= set(COLUMNS)


def test_a_plain_film_passes():
    assert reason(PLAIN) is None
    assert reason(HALF[:len(HALF) * 7 // 10]) is None


@pytest.mark.parametrize(("why", "data"), [
    ("single_frame", film(pan(1, 1, 0, 256, 320), options=X264)),
    ("too_short", film(pan(1, 49, 2, 256, 320), options=X264)),
    ("too_small", film(pan(1, 60, 2, 240, 320), options=X264)),
    ("low_fps", film(pan(1, 40, 2, 256, 320), 15, options=X264)),
    ("aspect", film(pan(1, 60, 2, 256, 1024), options=X264)),
    ("low_bits", film([np.full((256, 320, 3), 90, np.uint8)] * 60, options=X264)),
    ("broken", HALF[:len(HALF) * 45 // 100]),
])
def test_each_rule_drops_what_it_is_for(why, data):
    assert reason(data) == why
