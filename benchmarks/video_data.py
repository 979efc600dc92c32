"""Films for a benchmark: shots of textures under a moving camera, with grain and sound, cut hard where it is known."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from av.video.frame import PictureType

RATE = 25
SOUND_RATE = 48_000
GRAIN = 3.0  # levels: what makes films of cameras dear to code
# As most files are: a keyframe at each cut. And as streams are: one each two seconds, wherever a cut is.
KEYS = ("keyint=250:scenecut=0", "keyint=50:min-keyint=50:scenecut=0")


def make(folder: Path, count: int, shots: int, size: tuple[int, int], *, shot_frames: int = 75, seed: int = 1) -> Path:
    """`count` films of so many shots in a folder, unless they are there. `truth.json` beside the folder: by film its cuts, in frames."""
    if folder.exists():
        return folder
    folder.mkdir(parents=True)
    truth = {}
    for number in range(count):
        name = f"{number:04d}.mp4"
        truth[name] = _film(folder / name, shots, size, shot_frames, 1000 * seed + number, at_cuts=number % 2 == 0)
    truth_of(folder).write_text(json.dumps(truth), encoding="utf-8")
    return folder


def truth_of(folder: Path) -> Path:
    return folder.parent / f"{folder.name}-truth.json"


def make_long(folder: Path, minutes: float, size: tuple[int, int], shots: int = 8, seed: int = 1) -> Path:
    """One film of so many minutes: a short one, its packets again and again."""
    if folder.exists():
        return folder
    short = make(folder.parent / f"{folder.name}-short", 1, shots, size, seed=seed)
    folder.mkdir(parents=True)
    name = "0000.mp4"
    frames = shots * 75
    times = max(1, round(minutes * 60 * RATE / frames))
    _repeated(short / name, folder / name, times)
    cuts = json.loads(truth_of(short).read_text())[name]
    every = [k * frames + cut for k in range(times) for cut in ([0, *cuts] if k else cuts)]
    truth_of(folder).write_text(json.dumps({name: every}), encoding="utf-8")
    return folder


def _film(path: Path, shots: int, size: tuple[int, int], shot_frames: int, seed: int, at_cuts: bool) -> list[int]:
    width, height = size
    random = np.random.default_rng(seed)
    grain = [np.clip(random.normal(3 * GRAIN, GRAIN, (height, width)), 0, 255).astype(np.uint8) for _ in range(3)]
    with av.open(str(path), "w") as out:
        stream: Any = out.add_stream("libx264", rate=RATE, options={"crf": "23", "preset": "veryfast", "x264-params": KEYS[not at_cuts]})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        sound: Any = out.add_stream("aac", rate=SOUND_RATE, layout="mono")
        number = 0
        for shot in range(shots):
            step = 2 * max(1, round(width / 640 * random.uniform(0.5, 2.0)))
            wide = [_texture(random, height // part, (width + step * shot_frames) // part, level, contrast)
                    for part, level, contrast in ((1, random.uniform(70, 150), 40), (2, random.uniform(90, 160), 8),
                                                  (2, random.uniform(90, 160), 8))]
            for k in range(shot_frames):
                left = step * (k if shot % 2 else shot_frames - k)
                planes = [one[:, left // part:(left + width) // part] for one, part in zip(wide, (1, 2, 2), strict=True)]
                planes[0] = cv2.add(planes[0], grain[number % len(grain)])
                frame = av.VideoFrame.from_ndarray(np.concatenate([one.reshape(-1, width) for one in planes]), "yuv420p")
                frame.pts, frame.time_base = number, Fraction(1, RATE)
                frame.pict_type = PictureType.I if at_cuts and not k else PictureType.NONE
                out.mux(stream.encode(frame))
                number += 1
            _say(out, sound, random, shot * shot_frames / RATE, shot_frames / RATE)
        for one in (stream, sound):
            out.mux(one.encode(None))
    return [shot_frames * k for k in range(1, shots)]


def _texture(random: np.random.Generator, height: int, width: int, level: float, contrast: float) -> np.ndarray:
    """Noise of five octaves, and blocks with hard edges, so that it is sharp; uint8."""
    plane = np.zeros((height, width), np.float32)
    for octave in (8, 16, 32, 64, 128):
        cell = max(2, round(octave * height / 240))
        grid = random.uniform(-1, 1, (height // cell + 2, width // cell + 2)).astype(np.float32)
        plane += cv2.resize(grid, (width, height), interpolation=cv2.INTER_CUBIC) * octave**0.5
    side = max(2, height // 36)
    blocks = random.uniform(-contrast, contrast, (height // side + 1, width // side + 1)).astype(np.float32)
    hard = blocks.repeat(side, axis=0)[:height].repeat(side, axis=1)[:, :width]
    return np.clip(plane * (contrast / 2 / plane.std()) + hard + level, 0, 240).astype(np.uint8)


def _say(out: Any, stream: Any, random: np.random.Generator, start: float, seconds: float) -> None:
    at, until = round(start * SOUND_RATE), round((start + seconds) * SOUND_RATE)
    size = stream.codec_context.frame_size or 1024
    first = -(-at // size) * size
    for begin in range(first, until, size):
        samples = (0.1 * random.standard_normal((1, size))).astype(np.float32)
        frame = av.AudioFrame.from_ndarray(samples, "fltp", "mono")
        frame.sample_rate, frame.pts, frame.time_base = SOUND_RATE, begin, Fraction(1, SOUND_RATE)
        out.mux(stream.encode(frame))


def _repeated(source: Path, target: Path, times: int) -> None:
    """The packets of a film so many times, one after the other."""
    with av.open(str(source)) as read:
        tracks = [read.streams.video[0], read.streams.audio[0]]
        packets = [packet for packet in read.demux(*tracks) if packet.size]
        length = Fraction(max(p.pts + p.duration for p in packets if p.stream.type == "video")) * tracks[0].time_base
        first = {one.index: min(p.dts for p in packets if p.stream.index == one.index) for one in tracks}
        with av.open(str(target), "w") as out:
            made = {one.index: out.add_stream_from_template(one) for one in tracks}
            was = {p: (p.pts, p.dts, p.stream.index) for p in packets}
            last = dict.fromkeys(first, -10**12)
            for k in range(times):
                for packet in packets:
                    pts, dts, index = was[packet]
                    shift = round(k * length / packet.time_base)
                    if dts + shift <= last[index] or (k and dts < first[index]):
                        continue
                    packet.pts, packet.dts, packet.stream = pts + shift, dts + shift, made[index]
                    last[index] = dts + shift
                    out.mux(packet)
