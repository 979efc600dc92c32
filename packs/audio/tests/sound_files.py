"""Files with sound in many formats, made in memory."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from curator.api.tasks import Batch


def by_soundfile(samples: np.ndarray, rate: int, format: str = "WAV", subtype: str | None = None, **options) -> bytes:
    """Encoded by libsndfile, in blocks: at once it needs a stack as large as the recording for Vorbis. [n] or [channels, n]."""
    import soundfile

    data, file = np.atleast_2d(samples).T, io.BytesIO()
    with soundfile.SoundFile(file, "w", rate, data.shape[1], subtype, format=format, **options) as output:
        for start in range(0, len(data), rate):
            output.write(data[start:start + rate])
    return file.getvalue()


def by_av(samples: np.ndarray, rate: int, container: str, codec: str, *, video: bool = False, streams: int = 1,
          options: dict[str, str] | None = None, container_options: dict[str, str] | None = None) -> bytes:
    """Encoded by FFmpeg; with a picture if it is to be a video. [n] or [channels, n]."""
    import av

    data = np.ascontiguousarray(np.atleast_2d(samples), np.float32)
    layout = {1: "mono", 2: "stereo"}[len(data)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "made")
        with av.open(str(path), "w", format=container, options=container_options or {}) as output:
            _fill(output, data, rate, codec, layout, video, streams, options or {})
        return path.read_bytes()


def _fill(output, data, rate, codec, layout, video, streams, options):
    import av

    picture = output.add_stream("mpeg4", rate=5) if video else None
    if picture is not None:
        picture.width, picture.height, picture.pix_fmt = 32, 32, "yuv420p"
    made = [output.add_stream(codec, rate=rate, layout=layout, options=options) for _ in range(streams)]
    if picture is not None:
        black = av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8), format="rgb24")
        output.mux(picture.encode(black))
        output.mux(picture.encode(None))
    for number, stream in enumerate(made):
        for start in range(0, data.shape[1], rate):
            frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(data[:, start:start + rate]) / (number + 1), "fltp", layout)
            frame.sample_rate, frame.pts = rate, start
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))


def files(*contents: bytes | None, **columns) -> Batch:
    """Records 0, 1, … as readers give them."""
    ids = pa.array([str(number) for number in range(len(contents))], pa.string())
    return Batch(rows=pa.table({"id": ids, "source": ids, "bytes": pa.array(contents, pa.binary()), **columns}))
