"""What `each` costs: a stage of the image pack over frames of clips, against the same stage called bare on
the same frames.

    python benchmarks/each.py [--rounds 9]

480 frames of 384 x 216 in 40 clips, in batches as the engine makes them. The same ten clips both ways, one
after the other, the best processor time of the rounds; bare / each, and what `each` adds a frame. What both
found is compared in the same run. Results are printed, and written to benchmarks/results/each.json; about a
minute.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from curator_image import Hash, Resize, Signals

from curator import ImageBatch, Outputs, Stage, VideoBatch
from curator.stages import Each
from curator.testing.run import fresh, marked

RESULTS = Path(__file__).parent / "results"
CLIPS, FRAMES, HEIGHT, WIDTH, CALL_CLIPS, CALL_FRAMES = 40, 12, 216, 384, 10, 64
SIGNALS = [name for name, kind in Signals().contract().adds.items() if pa.types.is_floating(kind)]
CASES: dict[str, tuple[Stage, dict[str, Any]]] = {
    "image.signals": (Signals(), {name: ["list", "mean", "max"] for name in SIGNALS}),
    "image.resize": (Resize(size=224), {"width": "list"}),
    "image.hash": (Hash(), {"phash": "list"}),
}


def clip(seed: int) -> np.ndarray:
    """A pan over blocks and noise."""
    random = np.random.default_rng(seed)
    blocks = random.integers(0, 230, (HEIGHT // 8, WIDTH // 8, 3), np.uint8).repeat(8, 0).repeat(8, 1)
    return np.stack([np.roll(blocks, 3 * k, 1) + random.integers(0, 25, blocks.shape, np.uint8) for k in range(FRAMES)])


def seconds(work: Callable[[Any], Any], calls: list) -> tuple[float, list]:
    began = time.process_time()
    answers = []
    for call in calls:
        made = work(call)
        made = made["out"] if isinstance(made, Outputs) else made
        answers.append(made.with_payloads(**dict.fromkeys(made.payloads())))  # also freeing takes time
        del made
    return time.process_time() - began, answers


def alone(clips: list[np.ndarray]) -> list[ImageBatch]:
    """The frames of clips as images, in batches."""
    frames = [frame for one in clips for frame in one]
    names = [str(n) for n in range(len(frames))]
    size = {"width": pa.array([WIDTH] * len(frames), pa.int32()), "height": pa.array([HEIGHT] * len(frames), pa.int32())}
    images = ImageBatch(pa.table({"id": names, "source": names, **size}), pixels=frames)
    return [images.slice(at, min(at + CALL_FRAMES, len(images))) for at in range(0, len(images), CALL_FRAMES)]


def measure(stage: Stage, gather: dict[str, Any], clips: list[np.ndarray], rounds: int) -> dict[str, float]:
    bare, each = fresh(stage), fresh(Each(payload="frames", as_="pixels", steps=[stage], gather=gather))
    pairs = []  # the same frames both ways, one after the other: what else the machine does meets both
    for at in range(0, len(clips), CALL_CLIPS):
        some = clips[at:at + CALL_CLIPS]
        ids = [str(n) for n in range(len(some))]
        pairs.append((alone(some), [marked(VideoBatch(pa.table({"id": ids, "source": ids}), frames=some))]))
    least = {(name, at): float("inf") for name in ("bare", "each") for at in range(len(pairs))}
    for number in range(rounds):
        for at, (images, films) in enumerate(pairs):
            ways = [("bare", bare.process, images), ("each", each.process, films)]
            answers = {}
            for name, work, calls in ways if number % 2 else ways[::-1]:
                took, answers[name] = seconds(work, calls)
                least[name, at] = min(least[name, at], took)
            for column, asked in gather.items() if not number else ():
                into = column if asked == "list" else f"{column}_list"
                flat = [value for answer in answers["each"] for values in answer.column(into) for value in values]
                assert flat == [value for answer in answers["bare"] for value in answer.column(column)], column
    spent = {way: 1e6 * sum(took for (name, _), took in least.items() if name == way) / sum(map(len, clips)) for way in ("bare", "each")}
    return {"ratio": round(spent["bare"] / spent["each"], 3), "bare_us_a_frame": round(spent["bare"], 1),
            "each_adds_us_a_frame": round(spent["each"] - spent["bare"], 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    clips = [clip(seed) for seed in range(CLIPS)]
    results = {name: measure(stage, gather, clips, rounds) for name, (stage, gather) in CASES.items()}
    for name, row in results.items():
        print(f"{name:16} {row['ratio']:6.3f} of bare; bare {row['bare_us_a_frame']:8.1f} us a frame, "
              f"each adds {row['each_adds_us_a_frame']:5.1f} us")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "each.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
