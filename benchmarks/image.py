"""Images beside imagededup, data-juicer and a plain Pillow loop: hashes and scores from files, and CLIP fed by a pipeline.

    python benchmarks/image.py [--only hash,scores,clip] [--tools ours,imagededup,pillow,data-juicer] [--photos FOLDER]
                               [--images 4000] [--sizes 500x375,2048x1536]

Makes a virtual environment for each peer beside this file (once; delete it to get newer ones) with what the package index has.
Results are printed, and written to benchmarks/results/image.json, which keeps what it has of other rows and tools. Linux; about a
quarter of an hour on two cores. image_data.py makes the files, from the photographs of --photos where given.

- `hash`: a 64-bit perceptual hash of each file, with two workers. Ours runs its engine with ledger, accounts and output.
- `scores`: the same with scores of each image: `ours` all 18 of `image.signals`, `ours:five` the five of the Pillow loop;
  data-juicer those that run_data_juicer.py names, which look at width, height and bytes only.
- `clip`: embeddings by CLIP ViT-B/32 with random weights. `bare` is the model alone on tensors in memory, with all cores;
  `ours` reads, decodes, resizes and embeds files.

Two runs each, of a quarter of the images and of all: `images/s` is of all, start and end of the process included; `more/s` is
what the second run had more by what it took longer: the rate at which a long run goes. `CPU-s` is of all processes.
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import tempfile
from pathlib import Path
from typing import Any

import image_data
import peers
from engine import REAP

HERE = Path(__file__).resolve().parent
TOOLS = ("ours", "imagededup", "pillow", "data-juicer")
PACKAGES = {"imagededup": ("imagededup",), "pillow": ("pillow", "numpy"),
            "data-juicer": ("py-data-juicer", "aiohttp", "imagededup", "opencv-python")}
CAN = {"hash": TOOLS, "scores": ("ours", "ours:five", "pillow", "data-juicer"), "clip": ("ours",)}
LIMIT_S = 1800
WORKERS = 2


def call(tool: str, task: str, images: Path) -> dict[str, Any]:
    tool, _, variant = tool.partition(":")
    job = {"images": str(images), "workers": WORKERS, "variant": variant}
    return peers.call("image", tool, PACKAGES.get(tool, ()), task, job, LIMIT_S)


def rated(tool: str, task: str, quarter: Path, whole: Path) -> dict[str, Any]:
    """Rates of a task: of the larger run, and of what it had more than the smaller one; a first run warms the disk's cache."""
    _, small, large = (call(tool, task, images) for images in (quarter, quarter, whole))
    if "error" in small or "error" in large:
        return small if "error" in small else large
    more = large["images"] - small["images"]
    return large | {"images_per_s": large["images"] / large["seconds"],
                    "more_per_s": more / max(1e-9, large["seconds"] - small["seconds"]),
                    "images_per_cpu_s": more / max(1e-9, large["cpu_s"] - small["cpu_s"])}


def clip(quarter: Path, whole: Path) -> dict[str, dict[str, Any]]:
    """The bare model, and ours beside it."""
    alone, fed = rated("ours", "bare", quarter, whole), rated("ours", "clip", quarter, whole)
    if "error" not in alone:
        alone["more_per_s"] = alone["images"] / alone["model_s"]
    return {"bare": alone, "ours": fed}


def show(name: str, told: dict[str, Any], first: dict[str, Any] | None = None) -> None:
    if "error" in told:
        print(f"  {name:14} {told['error']}", flush=True)
        return
    figures = "".join(f"{told[key]:12,.1f}" for key in ("seconds", "cpu_s", "images_per_s", "more_per_s", "images_per_cpu_s"))
    ratio = f"{first['more_per_s'] / told['more_per_s']:10.2f}" if first and "error" not in first else ""
    print(f"  {name:14}{figures}{ratio}", flush=True)


def rows(told: argparse.Namespace, place: Path) -> Any:
    """(row, size, tool), figures."""
    for size in told.sizes.split(","):
        shape = tuple(int(side) for side in size.split("x"))
        for row in told.only.split(","):
            count = told.images if shape[0] <= 1000 else told.images // 4
            if row == "clip":
                count = told.clip_images
            quarter, whole = (image_data.make(place / f"{size}-{n}/images", n, shape, told.photos) for n in (count // 4, count))
            heads = "".join(f"{head:>12}" for head in ("seconds", "CPU-s", "images/s", "more/s", "more/CPU-s"))
            print(f"{row}, {count:,} images of {size}, {WORKERS} workers\n{'':16}{heads}  ours is x", flush=True)
            if row == "clip":
                found = clip(quarter, whole)
            else:
                asked = [tool for tool in CAN[row] if tool.partition(":")[0] in told.tools.split(",")]
                found = {tool: rated(tool, row, quarter, whole) for tool in asked}
            for tool, figures in found.items():
                ours = found.get("ours:five", found.get("ours"))
                show(tool, figures, None if tool.startswith("ours") else ours)
                yield (row, size, tool), figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="hash,scores,clip", help="rows")
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--photos", type=Path, help="a folder of photographs; by default images are made")
    parser.add_argument("--images", type=int, default=4000, help="a quarter of that of sizes above 1,000 pixels")
    parser.add_argument("--clip-images", type=int, default=1024)
    parser.add_argument("--sizes", default="500x375,2048x1536")
    told = parser.parse_args()
    ctypes.CDLL(None).prctl(REAP, 1, 0, 0, 0)
    place = Path(tempfile.mkdtemp(prefix="image"))
    try:
        peers.keep("image", rows(told, place))
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
