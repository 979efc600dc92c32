"""Films: shots beside bare decoding, clips by copy, a whole recipe, an hour of 1080p, peers.

    python benchmarks/video.py [--only detect,copy,stages,split,long] [--tools ours,scenedetect,data-juicer] [--sizes 360,1080,2160]
                               [--shots N] [--films N] [--minutes 60]

Makes a virtual environment for each peer beside this file (once; delete it to get newer ones) with what the package index has.
Results are printed, and written to benchmarks/results/video.json, which keeps what it has of other rows and tools. Linux; about
twenty minutes on two cores. video_data.py makes the films: shots of 3 s with grain, a moving camera and sound, H.264 at 25 pictures a
second, with a keyframe at each cut in one film and one each two seconds in the next. All tools read the same ones. Larger pictures take
longer to make than to read, so of them there are fewer: films and shots by size are in AMOUNT, which --films and --shots change.

- `detect`: one film for each size, in one thread, frames a CPU-second (the best of three rounds that take turns) and as a
  share of bare decoding by PyAV: `thumbs` reads and makes thumbnails, `shots` is the stage `video.shots`, `scdet` FFmpeg's filter;
  `content` and `adaptive` are PySceneDetect as it comes. `found` of the cuts that there are, and `false` ones.
- `copy`: the stage `video.cut` on all shots of the films, written to disk; `plain` is a copy of the same bytes by the system.
- `stages`: the stages of `video/split` one after the other in one process, each over all films: microseconds of processor time a
  picture, beside decoding alone.
- `split`: the recipe `video/split` on films of each size, from files to clips in tars, with two workers. `of bare`: the
  processor time of decoding the films once, by as many processes, divided by that of the recipe; of a run on all films less
  one on the first two, so that start and end do not count. Each clip must be a shot, and none encoded. Below it the share of each step.
  data-juicer cuts where PySceneDetect does, by the ffmpeg program, which encodes, and measures motion.
- `long`: one film of an hour of 1080p, which is a short one again and again (its clips are copies of each other); `MB` is the
  peak of all processes together (PSS: what they share counts once).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import shutil
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import peers
import video_data
from engine import REAP

HERE = Path(__file__).resolve().parent
ROWS = ("detect", "copy", "stages", "split", "long")
SIZES = {"360": (640, 360), "1080": (1920, 1080), "2160": (3840, 2160)}
AMOUNT = {"360": (4, 20), "1080": (3, 7), "2160": (4, 4)}  # films of the row split, shots of a film
PACKAGES = {"scenedetect": ("scenedetect", "opencv-python-headless"),
            "data-juicer": ("py-data-juicer", "aiohttp", "av", "opencv-python-headless", "scenedetect", "imageio-ffmpeg")}
LIMIT_S = 5400
WORKERS = 2
SHOT = 75  # frames


def call(tool: str, task: str, films: Path, *, memory: bool = False) -> dict[str, Any]:
    job = {"films": str(films), "workers": WORKERS}
    return peers.call("video", tool, PACKAGES.get(tool, ()), task, job, LIMIT_S, memory=memory)


def truth(films: Path) -> dict[str, list[int]]:
    return json.loads(video_data.truth_of(films).read_text())


def detect(films: Path, tools: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    real = truth(films)
    for tool in ("ours", "scenedetect"):
        if tool not in tools:
            continue
        told = call(tool, "detect", films)
        if "error" in told:
            yield tool, told
            continue
        for name, one in told.items():
            if not isinstance(one, dict):
                continue
            cuts = one.pop("cuts")
            right = sum(len(set(cuts[film]) & set(at)) for film, at in real.items())
            total = sum(map(len, cuts.values()))
            yield name, one | {"rate": one["frames"] / one["cpu_s"], "found": right, "false": total - right,
                               "of": sum(map(len, real.values()))}


def show_detect(name: str, told: dict[str, Any], bare: float) -> None:
    if "error" in told:
        print(f"  {name:14} {told['error']}", flush=True)
        return
    told["of_bare"] = told["rate"] / bare
    seen = "" if name in ("bare", "thumbs") else f"   found {told['found']} of {told['of']}, {told['false']} false"
    print(f"  {name:14}{told['rate']:10,.0f} frames a CPU-second{told['of_bare']:8.2f} of bare{seen}", flush=True)


def first_of(films: Path) -> Path:
    """A folder with the first of these films, one for each worker, so that as many start."""
    folder = films.parent / f"first-{films.name}"
    if not folder.exists():
        folder.mkdir()
        names = sorted(path.name for path in films.iterdir())[:WORKERS]
        for name in names:
            shutil.copyfile(films / name, folder / name)
        video_data.truth_of(folder).write_text(json.dumps({name: truth(films)[name] for name in names}))
    return folder


def split(whole: Path) -> dict[str, dict[str, Any]]:
    """Bare decoding and the recipe: processor time of what the larger run has more."""
    found: dict[str, dict[str, Any]] = {}
    for name in ("bare", "split"):
        small, large = (call("ours", name, films) for films in (first_of(whole), whole))
        if "error" in small or "error" in large:
            return {name: small if "error" in small else large}
        found[name] = large | {"more_cpu_s": large["cpu_s"] - small["cpu_s"], "more_s": large["seconds"] - small["seconds"]}
        if name == "split":
            found[name]["clips"] = len(large["spans"])
            found[name]["clips_a_second"] = (len(large["spans"]) - len(small["spans"])) / max(1e-9, found[name]["more_s"])
    told = found["split"]
    told["of_bare"] = found["bare"]["more_cpu_s"] / told["more_cpu_s"]
    return found if not (wrong := unlike(told, whole)) else {"split": {"error": wrong}}


def unlike(told: dict[str, Any], films: Path, *, copies: bool = False) -> str:
    """What is wrong with the clips of a run, if anything is."""
    real = {name: [0, *cuts, (cuts[-1] if cuts else 0) + SHOT] for name, cuts in truth(films).items()}
    shots = {(name, one, two) for name, cuts in real.items() for one, two in pairwise(cuts)}
    strange = [span for span in map(tuple, told["spans"]) if span not in shots]
    records = told["records"]
    total = sum(records.get(port, 0) for port in ("written", "dropped", "duplicate"))
    if strange or total != len(shots) or (not copies and len(told["spans"]) != len(shots)) or told["methods"]["exact"]:
        return (f"{len(strange)} clips are no shot ({strange[:3]}); of {len(shots)} shots {total} are told of, "
                f"{len(told['spans'])} written; {told['methods']}")
    return ""


def show_split(found: dict[str, dict[str, Any]]) -> None:
    for name, told in found.items():
        if "error" in told:
            print(f"  {name:14} {told['error']}", flush=True)
        elif name == "bare":
            print(f"  {name:14}{told['seconds']:8.1f} s{told['cpu_s']:8.1f} CPU-s", flush=True)
        else:
            print(f"  {name:14}{told['seconds']:8.1f} s{told['cpu_s']:8.1f} CPU-s{told.get('of_bare', 0):8.2f} of bare"
                  f"{told.get('clips_a_second', 0):8.2f} clips a second", flush=True)
            show_steps(told["busy_s"])


def show_stages(size: str, told: dict[str, Any]) -> None:
    if "error" in told:
        print(f"stages, {size}p: {told['error']}", flush=True)
        return
    each = {name: 1e6 * s / told["frames"] for name, s in told["cpu_s_of"].items()}
    bare = each.pop("bare")
    told["of_bare"] = bare / sum(each.values())
    print(f"stages, {size}p, microseconds a picture: bare {bare:.0f}; {sum(each.values()):.0f}, {told['of_bare']:.2f} of bare: "
          + ", ".join(f"{name} {spent:.0f}" for name, spent in each.items()), flush=True)


def show_steps(busy: dict[str, float]) -> None:
    total = sum(busy.values())
    print("    " + ", ".join(f"{name} {100 * s / total:.0f} %" for name, s in busy.items() if s > 0.005 * total), flush=True)


def amount(told: argparse.Namespace, size: str) -> tuple[int, int]:
    """How many films, and shots in each."""
    films, shots = AMOUNT[size]
    return told.films or films, told.shots or shots


def rows(told: argparse.Namespace, place: Path) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """(row, size, tool), figures."""
    asked, tools, sizes = told.only.split(","), told.tools.split(","), told.sizes.split(",")
    for size in sizes if "detect" in asked else ():
        films = video_data.make(place / f"one-{size}", 1, amount(told, size)[1], SIZES[size])
        print(f"detect, {size}p, {megabits(films):.1f} Mbit a second", flush=True)
        rate = 0.0
        for name, one in detect(films, tools):
            rate = one.get("rate", rate) if name == "bare" else rate
            show_detect(name, one, rate or float("nan"))
            yield ("detect", size, name), one
    for size in sizes if "copy" in asked else ():
        films = video_data.make(place / f"one-{size}", 1, amount(told, size)[1], SIZES[size])
        one = call("ours", "copy", films)
        if "error" not in one:
            one |= {"mb_a_second": one["bytes"] / 1e6 / one["cut_s"], "plain_mb_a_second": one["bytes"] / 1e6 / one["plain_s"]}
            print(f"copy, {size}p: {one['clips']} clips, {one['encoded']} encoded, {one['mb_a_second']:,.0f} MB a second, "
                  f"{one['clips'] / one['cut_s']:,.0f} clips a second; plain {one['plain_mb_a_second']:,.0f} MB a second", flush=True)
        else:
            print(f"copy, {size}p: {one['error']}", flush=True)
        yield ("copy", size, "ours"), one
    for size in sizes if "stages" in asked else ():
        count, shots = amount(told, size)
        whole = video_data.make(place / f"all-{size}", count, shots, SIZES[size])
        one = call("ours", "stages", whole)
        show_stages(size, one)
        yield ("stages", size, "ours"), one
    for size in sizes if "split" in asked else ():
        count, shots = amount(told, size)
        whole = video_data.make(place / f"all-{size}", count, shots, SIZES[size])
        print(f"split, {size}p, {count} films of {shots * 3} s, {WORKERS} workers", flush=True)
        found = split(whole)
        if "data-juicer" in tools:
            one = call("data-juicer", "split", whole)
            found["data-juicer"] = one if "error" in one else one | {"clips_a_second": one["clips"] / one["seconds"], "busy_s": {}}
        show_split(found)
        yield from ((("split", size, name), one) for name, one in found.items())
    if "long" in asked:
        films = video_data.make_long(place / "long", told.minutes, SIZES["1080"])
        one = call("ours", "split", films, memory=True)
        if "error" not in one and (wrong := unlike(one, films, copies=True)):
            one = {"error": wrong}
        took = one.get("error") or (f"{one['seconds']:,.0f} s, {60 * told.minutes / one['seconds']:.1f} x real time, "
                                    f"at most {one['peak_mb']:,.0f} MB")
        print(f"long, {told.minutes:g} minutes of 1080p: {took}", flush=True)
        if "error" not in one:
            show_steps(one["busy_s"])
        yield ("long", "1080", "ours"), {name: value for name, value in one.items() if name != "spans"}


def megabits(films: Path) -> float:
    seconds = sum((cuts[-1] if cuts else 0) + SHOT for cuts in truth(films).values()) / video_data.RATE
    return sum(path.stat().st_size for path in films.iterdir()) * 8 / 1e6 / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(ROWS), help="rows")
    parser.add_argument("--tools", default="ours,scenedetect,data-juicer")
    parser.add_argument("--sizes", default=",".join(SIZES), help="rows of pictures")
    parser.add_argument("--shots", type=int, help="of a film")
    parser.add_argument("--films", type=int, help="of the row split, 3 or more")
    parser.add_argument("--minutes", type=float, default=60.0, help="of the row long")
    told = parser.parse_args()
    ctypes.CDLL(None).prctl(REAP, 1, 0, 0, 0)
    place = Path(tempfile.mkdtemp(prefix="video"))
    try:
        peers.keep("video", rows(told, place))
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
