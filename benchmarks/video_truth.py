"""How right the measures of films are: on films of which the truth is known.

    python benchmarks/video_truth.py [FOLDER] [--only shots,spans,motion,measures,copies]

Prints a table; some two minutes of one core. Films are made here, of textures under a camera whose path is known, coded by x264 at crf
20, and read as any other. FOLDER: real films; the row `copies` is of their clips, and without it of clips that are made.

- `shots`: 21 films with hard cuts, dissolves, fades, wipes, flashes, whips, zooms, three times each.
- `spans`: which pictures the clips of `video.cut` show, by the numbers that are drawn into them, as FFmpeg and OpenCV read them; and
  where their sound fits best into that of the film.
- `motion`: paths of the camera and of a square, 320 x 240 at 25 pictures a second. A diagonal is 400 pixels.
- `measures`: all others, each of a film made for it.
- `copies`: each clip changed in each way and coded anew, compared with all clips as they are: how many find their own, and how many
  another. The clips of a film are cut where its shots change. And how many are taken for copies of each other where none is one: of 60
  clips that are made, and of the clips' parts of 2 s.
"""

from __future__ import annotations

import argparse
import io
import itertools
import math
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pyarrow as pa
from curator_dedup import DedupNear
from curator_video import Clips, Cut, Decode, Hash, Motion, Overlay, Shots, Signals, SoundLevel, Vectors

from curator.testing import run_stage

sys.path.append(str(Path(__file__).resolve().parent.parent))
from packs.video.tests import scenes
from packs.video.tests.clips import barred
from packs.video.tests.films import film, films, moving, number_of, numbered, pan, sine, texture
from packs.video.tests.paths import moved, with_square

Row = tuple[str, str, str]  # what was measured, what is known, what came out
Pictures = list[np.ndarray]
FPS = 25
SEEDS = (0, 200, 400)
RATE = 16_000
GOP = {"crf": "20", "preset": "veryfast", "x264-params": "keyint=50:min-keyint=50:scenecut=0"}
SPANS = [(2.8, 6.0), (0.52, 1.48), (1.99, 3.01), (0.0, 0.4), (7.96, 12.0)]
NEAR = {"column": "phash", "distance": 4, "hashes": 128, "share": 0.75, "within": 10}  # as video/split has it


def rows_of(stage: Any, *contents: bytes) -> list[dict[str, Any]]:
    return run_stage(stage, films(*contents))["out"].rows.to_pylist()


def measured(stage: Any, pictures: Pictures, size: int = 384) -> dict[str, Any]:
    """The columns of a film of these pictures."""
    decoded = run_stage(Decode(fps=2, size=size), films(film(pictures, FPS)))["out"]
    return run_stage(stage, decoded)["out"].rows.to_pylist()[0]


# -- shots ----------------------------------------------------------------------------------------------------------


def shots(_: Path | None) -> Iterator[Row]:
    hard, soft, wipes, flashes, off, false = [0, 0], [0, 0], [0, 0], [0, 0], [0], dict[str, int]()
    for seed, (name, (_, cuts, gradual, lit)) in itertools.product(SEEDS, scenes.cases().items()):
        (row,) = rows_of(Shots(), film(scenes.drawn(name, seed), FPS))
        told = [(round(one["end"] * FPS), round(two["start"] * FPS)) for one, two in itertools.pairwise(row["shots"])]
        here = {edges for edges in told if edges[1] - edges[0] < 2 and edges[1] in cuts}
        hard = [hard[0] + len(here), hard[1] + len(cuts)]
        for first, last in gradual:
            near = [edges for edges in told if abs(edges[0] - first) <= 4 and abs(edges[1] - last - 1) <= 4]
            kind = wipes if name.startswith("wipe") else soft
            kind[0], kind[1] = kind[0] + bool(near), kind[1] + 1
            off += [max(abs(edges[0] - first), abs(edges[1] - last - 1)) for edges in near]
            here.update(near)
        flashes = [flashes[0] + row["flash_count"], flashes[1] + lit]
        false[name] = false.get(name, 0) + len(told) - len(here)
    yield "hard cuts, to the picture", str(hard[1]), str(hard[0])
    yield "dissolves and fades; most pictures that an edge is off", str(soft[1]), f"{soft[0]}; {max(off)}"
    yield "wipes", str(wipes[1]), str(wipes[0])
    yield "flashes", str(flashes[1]), str(flashes[0])
    where = ", ".join(f"{name} {count}" for name, count in false.items() if count)
    yield "false boundaries", "0", f"{sum(false.values())}" + (f" ({where})" if where else "")


# -- spans ----------------------------------------------------------------------------------------------------------


def spans(_: Path | None) -> Iterator[Row]:
    at = np.arange(12 * RATE) / RATE
    chirp = (0.5 * np.sin(2 * np.pi * (200 * at + 60 * at**2))).astype(np.float32)[None]  # there is one place only where it fits
    kinds = [film(numbered(300), options=GOP, sound=chirp, container=container) for container in ("mp4", "matroska")]
    for method in ("auto", "exact"):
        right, wrong, late = [0, 0], [0, 0], []
        for data in kinds:
            batch = films(*[data] * len(SPANS)).with_columns({
                name: pa.array([one[k] for one in SPANS], pa.float64()) for k, name in enumerate(("start_s", "end_s"))})
            whole = heard(data, 12.0)
            for (start, end), row in zip(SPANS, run_stage(Cut(method=method), batch)["out"].rows.to_pylist(), strict=True):
                known = [k for k in range(300) if start - 1e-6 <= k / FPS < end - 1e-6]
                for k, seen in enumerate((by_ffmpeg(row["bytes"]), by_opencv(row["bytes"]))):
                    right[k] += len(set(seen) & set(known))
                    wrong[k] += len(set(seen) ^ set(known)) + (sorted(seen) != seen)
                if end - start > 0.9:
                    late.append(lateness(heard(row["bytes"], end - start), whole, row["clip_start"], end - row["clip_start"]))
        total = sum(right) + sum(wrong)
        yield f"pictures of clips, method {method}: shown by FFmpeg and OpenCV; others, or missing", f"{total // 2}; 0", (
            f"{right[0]} and {right[1]}; {wrong[0]} and {wrong[1]}")
        yield f"sound of clips, method {method}: most that it is off, ms", "0", f"{max(map(abs, late)):.2f}"


def by_ffmpeg(data: bytes) -> list[int]:
    with av.open(io.BytesIO(data)) as file:
        return [number_of(frame.to_ndarray(format="rgb24")) for frame in file.decode(video=0)]


def by_opencv(data: bytes) -> list[int]:
    with tempfile.NamedTemporaryFile(suffix=".mp4") as file:
        Path(file.name).write_bytes(data)
        reader, found = cv2.VideoCapture(file.name), []
        while (got := reader.read())[0]:
            found.append(number_of(got[1]))
    return found


def heard(data: bytes, seconds: float) -> np.ndarray:
    """The sound as it lies in time, from 0."""
    line = np.zeros(round(seconds * RATE) + 8_000, np.float32)
    with av.open(io.BytesIO(data)) as file:
        for frame in file.decode(audio=0):
            at, samples = round(frame.time * RATE), frame.to_ndarray()[0]
            line[at:at + len(samples)] = samples[:max(0, len(line) - at)]
    return line


def lateness(clip: np.ndarray, whole: np.ndarray, start: float, seconds: float) -> float:
    """By how many ms the clip's sound is late, where it fits best into the film's."""
    part = clip[round(0.2 * RATE):round((seconds - 0.2) * RATE)]
    begin, lags = round((start + 0.2) * RATE), range(-480, 481)
    fits = [float(part @ whole[begin - lag:][:len(part)]) if begin >= lag else -math.inf for lag in lags]
    return 1000 * lags[int(np.argmax(fits))] / RATE


# -- motion ---------------------------------------------------------------------------------------------------------


def motion(_: Path | None) -> Iterator[Row]:
    def of(pictures: Pictures) -> dict[str, Any]:
        return measured(Motion(), pictures)

    for name, x, y in (("pan of 2 pixels", 2, 0), ("pan of 8", 8, 0), ("tilt of 3", 0, 3), ("still", 0, 0)):
        found = of(moved(60, x=x, y=y))
        yield f"{name}: `motion_mean`, `camera_x`, `camera_y`", (
            f"{math.hypot(x, y) / 16:.4g}, {x / 16:.4g}, {-y / 16:.4g}"), ", ".join(
            f"{found[one]:.3f}" for one in ("motion_mean", "camera_x", "camera_y"))
    yield "growth of 1 % a picture: `zoom`", f"{FPS * math.log(1.01):.3f}", f"{of(moved(60, grow=1.01))['zoom']:.3f}"
    yield "turn of 1 degree: `roll`", "25", f"{of(moved(60, turn=1))['roll']:.1f}"
    path = np.random.default_rng(0).normal(0, 4, (60, 2))
    found, true = of(moved(60, path=path)), np.hypot(*np.diff(path[::2], 2, axis=0).T).mean() / 2 / 400
    yield "places off by 4 pixels at random: `shake`, `camera`", f"{true:.3f}, handheld", f"{found['shake']:.3f}, {found['camera']}"
    for name, x in (("alone", 0), ("in a pan of 2 pixels", 2)):
        found = of(with_square(moved(50, x=x)))
        yield f"a square of 8.3 % moves by 4 pixels, {name}: `local_motion`, `moving_area`", ".021, .138 (with its trace)", (
            f"{found['local_motion']:.3f}, {found['moving_area']:.3f}")
    rng = np.random.default_rng(0)
    grain = [np.clip(one + rng.normal(0, 5, one.shape), 0, 255).astype(np.uint8) for one in moved(50)]
    yield "grain of 5 levels: `motion_mean`", "0", f"{of(grain)['motion_mean']:.3f}"
    plain = {"crf": "20", "preset": "veryfast", "bf": "0", "g": "250"}
    (row,) = rows_of(Vectors(), film(pan(3, 50, 6, 288, 512), FPS, options=plain))
    yield "pan of 6 pixels, 512 x 288: `codec_motion`, shares of both sides a picture", f"{6 / 800:.4f}", f"{row['codec_motion']:.4f}"


# -- other measures -------------------------------------------------------------------------------------------------


def measures(_: Path | None) -> Iterator[Row]:
    def of(pictures: Pictures) -> dict[str, Any]:
        return measured(Signals(), pictures)

    run = moved(150, x=4)
    found = of([*run[:50], *[run[49]] * 50, *run[50:100]])
    yield "freeze: `freeze_ratio`, `longest_freeze`", ".34, 2.04 s", f"{found['freeze_ratio']:.2f}, {found['longest_freeze']:.2f} s"
    found = of([*run[:50], *[np.zeros_like(run[0])] * 50, *run[50:100]])
    yield "a third black: `black_ratio`", ".333", f"{found['black_ratio']:.3f}"
    found = of([run[k * 4 // 5] for k in range(150)])
    yield "4 new of 5: `duplicate_ratio`, `true_fps`", ".20, 20", f"{found['duplicate_ratio']:.3f}, {found['true_fps']:.2f}"
    woven = [np.where(np.arange(240)[:, None, None] % 2, two, one) for one, two in zip(*[iter(moved(120, x=6))] * 2, strict=True)]
    whole, mixed = ((rows_of(Shots(), film(one, FPS))[0]["comb_ratio"]) for one in (run[:60], woven))
    yield "two fields woven, 6 pixels apart; whole: `comb_ratio`", "more than .007; 0", f"{mixed:.2f}; {whole:.4f}"
    boxed = of([barred(cv2.resize(one, (640, 360)), rows=44) for one in run[:75]])
    yield "bars of 44 of 360 rows: `border_ratio`, `content_aspect`", ".2444, 2.353", (
        f"{boxed['border_ratio']:.4f}, {boxed['content_aspect']:.3f}")
    still = texture(3)
    light = {"luma up and down by 10 %": (1 + 0.1 * (-1) ** np.arange(75), ".20"), "a ramp": (np.linspace(0.8, 1.2, 75), "0"),
             "still": (np.ones(75), "0")}
    for name, (gains, known) in light.items():
        found = of([np.clip(0.8 * still * gain, 0, 255).astype(np.uint8) for gain in gains])
        yield f"{name}: `flicker`", known, f"{found['flicker']:.3f}"
    cuts = [*pan(1, 40, 2), *pan(2, 40, 1), *pan(3, 40, 3)]
    none = {name: scenes.drawn(name) for name in ("flash1", "flash2", "whip", "dim", "dissolve12", "fadeblack")}
    inside = {name: round(of(list(one))["jump_ratio"] * (len(one) - 1)) for name, one in {"cuts": cuts, **none}.items()}
    yield f"cuts inside, of two; of {', '.join(none)}: steps in `jump_ratio`", "2; 0", (
        f"{inside.pop('cuts')}; {', '.join(f'{name} {count}' for name, count in inside.items() if count) or 0}")
    yield from overlays()
    half = np.concatenate([sine(440, 2.0), np.zeros((1, 2 * RATE), np.float32)], axis=1)
    (row,) = rows_of(SoundLevel(), film(numbered(100), FPS, sound=half))
    yield "half a tone, half silence: `silence_ratio`", ".5", f"{row['silence_ratio']:.2f}"


def overlays() -> Iterator[Row]:
    """A line of letters over a pan, over a still scene, and a mark."""
    ground = pan(3, 150, 4, 216, 384)
    kinds = {"a subtitle": ("so much is said below", (60, 195), "text_area"), "a mark": ("LOGO", (310, 28), "logo_area")}
    for name, (words, at, column) in kinds.items():
        rows, columns = np.nonzero(written(np.zeros_like(ground[0]), words, at).max(axis=2))
        area = (np.ptp(rows) + 1) * (np.ptp(columns) + 1) / (216 * 384)
        found = [measured(Overlay(), one)[column] for one in ([written(one, words, at) for one in ground], ground,
                                                              [written(ground[0], words, at)] * 75)]
        yield f"{name} over a pan; none; over a still scene: `{column}`", f"{area:.4f}; 0; null", (
            "; ".join("null" if one is None else f"{one:.4f}" for one in found))


def written(picture: np.ndarray, words: str, at: tuple[int, int]) -> np.ndarray:
    made = picture.copy()
    for colour, thick in (((0, 0, 0), 5), ((255, 255, 255), 2)):
        cv2.putText(made, words, at, cv2.FONT_HERSHEY_SIMPLEX, 0.7, colour, thick, cv2.LINE_AA)
    return made


# -- copies ---------------------------------------------------------------------------------------------------------


def clips_of(folder: Path | None) -> list[Pictures]:
    """The pictures of clips, at 25 a second and 384 pixels."""
    if folder is None:
        return [moving(seed, 6.0) for seed in range(6)]
    paths = sorted(str(one) for one in folder.iterdir() if one.is_file())
    found = run_stage(Clips(decode={"fps": FPS, "size": 384}), *[films(None).with_columns({"path": [path]}) for path in paths])["out"]
    return [list(one) for one in found.frames]


def changes(other: Pictures) -> dict[str, Callable[[Pictures], Pictures]]:
    """By name what is made of a clip. `other`: pictures that are no clip's."""
    def each(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Pictures], Pictures]:
        return lambda pictures: [np.ascontiguousarray(change(one)) for one in pictures]

    def like(one: np.ndarray, count: int, step: int = 1, first: int = 0) -> Pictures:
        size = one.shape[1::-1]
        return [cv2.resize(other[first + step * k], size) for k in range(count)]

    def cropped(one: np.ndarray) -> np.ndarray:
        height, width = (round(0.95 * side / 2) * 2 for side in one.shape[:2])
        return one[(one.shape[0] - height) // 2:, (one.shape[1] - width) // 2:][:height, :width]

    return {
        "half the size": each(lambda one: cv2.resize(one, (one.shape[1] // 4 * 2, one.shape[0] // 4 * 2), interpolation=cv2.INTER_AREA)),
        "letterbox of 40 rows": each(lambda one: cv2.copyMakeBorder(one, 40, 40, 0, 0, cv2.BORDER_CONSTANT)),
        "brighter by 15 %": each(lambda one: np.clip(one * 1.15, 0, 255).astype(np.uint8)),
        "every second picture": lambda pictures: [pictures[k // 2 * 2] for k in range(len(pictures))],
        "cropped by 5 %": each(cropped),
        "a still title of 2 s before it": lambda pictures: [*like(pictures[0], 1) * 50, *pictures],
        "begins 2.1 s later": lambda pictures: pictures[52:],
        "3 s from inside": lambda pictures: pictures[len(pictures) // 2 - 37:][:75],
        "between 2.4 s of other pictures on both sides": lambda pictures: [
            *like(pictures[0], 60), *pictures, *like(pictures[0], 60, first=80)],
        "after an intro of 3 s that moves": lambda pictures: [*like(pictures[0], 75), *pictures],
        "a subtitle": each(lambda one: written(one, "so much is said", (one.shape[1] // 6, one.shape[0] - 20))),
        "a white box of 2 % in a corner": each(lambda one: cv2.rectangle(
            one.copy(), (8, 8), (8 + round(one.shape[1] * 0.14), 8 + round(one.shape[0] * 0.14)), (255, 255, 255), -1)),
        "mirrored": each(lambda one: one[:, ::-1])}


def copies(folder: Path | None) -> Iterator[Row]:
    originals = clips_of(folder)
    for name, change in changes(moving(90, 8.0)).items():
        long = [k for k, one in enumerate(originals) if len(one) >= 5 * FPS or "s " not in name or "title" in name]
        made = [change(originals[k]) for k in long]
        coded = [film(one, FPS, options={"crf": "38" if "half" in name else "23", "preset": "veryfast"}) for one in [*originals, *made]]
        told = duplicates(coded, reference=f"CAST(id AS INT) < {len(originals)}")
        true = {str(len(originals) + at): str(k) for at, k in enumerate(long)}
        right = sum(true.get(one["id"]) == one["duplicate_of"] for one in told)
        yield f"copies: {name}; others", f"{len(long)}; 0", f"{right}; {len(told) - right}"
    made = [moving(seed, 3.0) if seed % 2 else pan(seed, 75, 2) for seed in range(100, 160)]
    parts = [one[at:at + 2 * FPS] for one in originals for at in range(0, len(one) - 2 * FPS + 1, 2 * FPS)]
    for name, others in (("made", made), ("parts of 2 s", parts)):
        yield f"copies: {len(others)} {name}", "0", str(len(duplicates([film(one, FPS, options={"crf": "23"}) for one in others])))


def duplicates(coded: list[bytes], **parameters: Any) -> list[dict[str, Any]]:
    decoded = run_stage(Decode(fps=2, size=384), films(*coded))["out"]
    near = run_stage(DedupNear(**NEAR, **parameters), run_stage(Hash(), decoded)["out"])
    return near["duplicate"].rows.to_pylist() if "duplicate" in near else []


ROWS = {"shots": shots, "spans": spans, "motion": motion, "measures": measures, "copies": copies}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--only", default=",".join(ROWS))
    told = parser.parse_args()
    print("| | known | measured |\n| --- | --- | --- |")
    for name in told.only.split(","):
        for row in ROWS[name](told.folder):
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
