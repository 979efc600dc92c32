"""The video pack, whole: its stages keep the rules, its recipes and rule sets load."""

from __future__ import annotations

import pyarrow as pa
import pytest
from curator_video.clips.audio import Audio
from curator_video.clips.cut import Cut
from curator_video.clips.frames import Frames
from curator_video.clips.preview import Preview
from curator_video.copies.hash import Hash
from curator_video.measures.motion import Motion
from curator_video.measures.overlay import Overlay
from curator_video.measures.signals import Signals
from curator_video.read.decode import Decode
from curator_video.read.files import VideoFiles
from curator_video.read.manifest import Manifest
from curator_video.read.probe import Probe
from curator_video.shots.parts import Parts
from curator_video.shots.shots import Shots
from curator_video.shots.spans import Spans
from curator_video.shots.stride import Stride

from curator.testing import check_pack
from packs.video.tests.clips import clip, clips
from packs.video.tests.films import film, films, numbered, pan, sine


def of_reading(folder):
    path = folder / "one.mp4"
    path.write_bytes(film(numbered(30), sound=sine(440, 1.2)))
    given = films(path.read_bytes(), b"no film", film(numbered(9), container="matroska"))
    either = {"skip": {"needs"}}  # they read bytes or a path, whichever is there
    yield VideoFiles(path=str(folder)), None
    (folder / "list.jsonl").write_text('{"path": "one.mp4", "start_s": 0.5}\n')
    yield Manifest(path=str(folder / "list.jsonl")), None
    yield from ((stage, given, either) for stage in (Probe(), Decode(), Shots(), Cut(), Frames(fps=2), Audio(rate=16_000)))
    long = given.with_columns({"duration": pa.array([12.0, None, 1.0])})
    yield Stride(), long, either
    yield Parts(minutes=0.1), long, either
    shots = pa.array([[{"start": 0.0, "end": 2.5}], None, []], pa.list_(pa.struct({"start": pa.float64(), "end": pa.float64()})))
    yield Spans(), long.with_columns({"shots": shots}), either


def of_measuring():
    given = clips(clip(pan(1, 30, 2)), None, clip(pan(2, 12, 0)))
    yield Motion(), given
    yield Overlay(), given
    yield Signals(), given
    yield Hash(), given
    yield Preview(), given


@pytest.mark.slow  # each stage passes the kit in its own file, too
def test_the_pack(tmp_path):
    check_pack("video", [*of_reading(tmp_path), *of_measuring()])
