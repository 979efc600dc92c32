"""The image pack, whole: its stages keep the rules, its recipes and rule sets load."""

from __future__ import annotations

import curator_image

from curator.testing import check_pack


def test_the_pack():
    examples = []  # (stage, batch) for each of STAGES
    assert len(examples) >= len(curator_image.STAGES)
    check_pack("image", examples)
