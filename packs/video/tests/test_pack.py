"""The video pack, whole: its stages keep the rules, its recipes and rule sets load."""

from __future__ import annotations

import pytest

from curator.testing import check_pack


@pytest.mark.slow  # each stage passes the kit in its own file, too
def test_the_pack():
    check_pack("video", [])
