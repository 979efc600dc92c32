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
from curator_video.measures.sound_level import SoundLevel
from curator_video.measures.vectors import Vectors
from curator_video.models.caption import Caption
from curator_video.models.caption_server import CaptionServer
from curator_video.models.embed import Embed
from curator_video.models.enhance import Enhance
from curator_video.models.text_match import TextMatch
from curator_video.once.clips import Clips
from curator_video.read.decode import Decode
from curator_video.read.files import VideoFiles
from curator_video.read.manifest import Manifest
from curator_video.read.probe import Probe
from curator_video.shots.parts import Parts
from curator_video.shots.shots import Shots
from curator_video.shots.spans import Spans
from curator_video.shots.stride import Stride
from curator_video.shots.transnet import Transnet
from curator_video.write.to_nemo import ToNemo

from curator.testing import check_pack
from packs.image.tests.chat_server import Model, completion
from packs.video.tests.clips import clip, clips
from packs.video.tests.films import film, films, numbered, pan, sine
from packs.video.tests.test_video_nemo import clips as written_clips
from packs.video.tests.tiny_encoders import save_transnet, save_xclip


def of_reading(folder):
    path = folder / "one.mp4"
    path.write_bytes(film(numbered(30), sound=sine(440, 1.2)))
    given = films(path.read_bytes(), b"no film", film(numbered(9), container="matroska"))
    either = {"skip": {"needs"}}  # they read bytes or a path, whichever is there
    yield VideoFiles(path=str(folder)), None
    (folder / "list.jsonl").write_text('{"path": "one.mp4", "start_s": 0.5}\n')
    yield Manifest(path=str(folder / "list.jsonl")), None
    yield from ((stage, given, either) for stage in (Probe(), Decode(), Shots(), Clips(spans={"min": 0.2}), Vectors(), SoundLevel(),
                                                Cut(), Frames(fps=2),
                                                Audio(rate=16_000)))
    long = given.with_columns({"duration": pa.array([12.0, None, 1.0])})
    yield Stride(), long, either
    yield Parts(minutes=0.1), long, either
    shots = pa.array([[{"start": 0.0, "end": 2.5}], None, []], pa.list_(pa.struct({"start": pa.float64(), "end": pa.float64()})))
    yield Spans(), long.with_columns({"shots": shots}), either


def of_measuring():
    given = clips(clip(pan(1, 30, 2)), None, clip(pan(2, 12, 0)))
    yield Motion(), given
    lasting = pan(1, 200, 4)
    yield Overlay(), clips(clip(lasting), None, clip(lasting[:100]))
    yield Signals(), given
    yield Hash(), given
    yield Preview(), given


def of_models(folder, url):
    from packs.image.tests.tiny_captioners import llava

    xclip, spans = save_xclip(folder / "xclip"), {"start_s": pa.array([0.0] * 3), "end_s": pa.array([1.2, 1.0, 0.5])}
    seen = clips(clip(pan(1, 30, 2)), None, clip(pan(2, 12, 0)), **spans, caption=pa.array(["a pan", "none", None]))
    yield Embed(model=xclip), seen
    yield TextMatch(model=xclip), seen
    yield Caption(model=llava(folder / "llava"), max_new_tokens=3, frames=2), seen
    yield CaptionServer(url=url, model="tiny", frames=2, backoff_s=0.0), seen
    yield Enhance(url=url, model="tiny", backoff_s=0.0), seen
    yield Transnet(model=save_transnet(folder / "transnet.pth")), films(film(pan(1, 20, 2)), b"no film", b""), {"skip": {"needs"}}


@pytest.mark.slow  # each stage passes the kit in its own file, too
def test_the_pack(tmp_path):
    pytest.importorskip("transformers")
    server = Model()
    server.answer = lambda question: completion("A clip.")
    models = [(stage, batch, {"tolerance": 1e-2, **(more[0] if more else {})}) for stage, batch, *more in of_models(tmp_path, server.url)]
    check_pack("video", [*of_reading(tmp_path), *of_measuring(), *models, (ToNemo(path=str(tmp_path / "nemo")), written_clips())])
    server.close()
