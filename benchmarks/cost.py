"""What packaged recipes cost a record, and what that makes of a billion documents, a million hours, ten million clips.

    python benchmarks/cost.py [--only text/web,image/quality] [--quick] [--photos FOLDER] [--recordings FOLDER] [--price-cpu-hour 0.04]

Recipes that need neither model nor network, on data that is made here: documents of paragraphs of `examples/corpus.py`, as they are
and as pages in archives, files of the standard library, photographs, speech, films of shots of 3 s. Each recipe runs as a user runs
it on a quarter of the files, then on all: `core-s` is what the second run had more of processor time, in all its processes, by what
it had more of items, so that starting is not counted, which has its column; `busy` is the same of the seconds that stages worked
(`_run/stats.json`), which other load of the machine makes longer. Bytes in are those of the files; bytes out those written, and
`beside` them what was dropped, failed or a copy. What follows for a corpus is a product and nothing more: no network, no lost nodes,
and deduplication as if it grew with the records. Printed as tables, and written to benchmarks/results/cost.json, which keeps what
it has of other recipes. Linux; some five minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkpoint import curator

RESULTS = Path(__file__).parent / "results"
NODE_CORES = 64
LICENSE = Path(__file__).resolve().parent.parent / "LICENSE"


@dataclass(frozen=True)
class Given:
    """How much data is made, and of what."""

    place: Path
    quick: bool
    photos: Path | None
    recordings: Path | None


@dataclass(frozen=True)
class Case:
    """A recipe. `data`: makes its input, and says how many items a whole folder has, where they are not the records read.
    `read`: what it is told of it. `item`, `scale`: what is counted, and how many are spoken of."""

    recipe: str
    data: Callable[[Given], tuple[Path, float | None]]
    item: str
    scale: float
    read: str = "read.path={folder}"
    note: str = ""

    @property
    def name(self) -> str:
        return f"{self.recipe}, {self.note}" if self.note else self.recipe


# -- data -------------------------------------------------------------------------------------------------------------


def corpus(given: Given) -> Path:
    """Documents of paragraphs, each a few kB; one in twenty a copy, one in ten edited a little."""
    from coming_from import documents

    path = given.place / "corpus.jsonl"
    if not path.exists():
        made = documents(1000 if given.quick else 16_000)
        path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in made), encoding="utf-8")
    return path


def jsonl(given: Given) -> tuple[Path, None]:
    from text_data import pieces

    return pieces(given.place / "jsonl", corpus(given)), None


def pages(given: Given) -> tuple[Path, None]:
    from text_data import archives

    return archives(given.place / "archives", corpus(given)), None


def code(given: Given) -> tuple[Path, None]:
    """Files of the standard library; a permissive licence beside them, for else the recipe drops them early."""
    folder, stdlib = given.place / "code", Path(sysconfig.get_paths()["stdlib"])
    if not folder.exists():
        folder.mkdir()
        paths = [p for p in sorted(stdlib.rglob("*.py")) if "site-packages" not in p.parts and "test" not in p.parts]
        for number, path in enumerate(paths[:200 if given.quick else 1600]):
            shutil.copy(path, folder / f"{number:04d}_{path.name}")
        shutil.copy(LICENSE, folder / "LICENSE")
    return folder, None


def photographs(given: Given) -> tuple[Path, None]:
    from image_data import make

    return make(given.place / "images", 80 if given.quick else 1200, (500, 375), given.photos), None


def speech(given: Given) -> tuple[Path, float]:
    from audio_data import make

    hours = 0.05 if given.quick else 0.75
    return make(given.place / "speech", 3600 * hours, given.recordings, minutes=0.5 if given.quick else 3.0), hours


def films(given: Given, width: int, height: int, count: int, shots: int) -> Path:
    from video_data import make

    return make(given.place / f"films-{height}", count, shots, (width, height))


def small_films(given: Given) -> tuple[Path, float]:
    count, shots = (4, 2) if given.quick else (8, 10)
    return films(given, 640, 360, count, shots), count * shots


def large_films(given: Given) -> tuple[Path, float]:
    count, shots = (4, 1) if given.quick else (4, 5)
    return films(given, 1920, 1080, count, shots), count * shots


TABLE = "read={{jsonl: {{path: '{folder}/*.jsonl'}}}}"
CASES = (
    Case("text/web", pages, "page", 1e9),
    Case("text/c4", pages, "page", 1e9),
    Case("text/refinedweb", pages, "page", 1e9),
    Case("text/documents", jsonl, "document", 1e9, TABLE),
    Case("text/quality-buckets", jsonl, "document", 1e9, TABLE),
    Case("text/dedup", jsonl, "document", 1e9, TABLE),
    Case("text/code", code, "file", 1e9),
    Case("image/quality", photographs, "image", 1e9, note="500 x 375"),
    Case("audio/speech", speech, "hour", 1e6),
    Case("audio/quality", speech, "hour", 1e6),
    Case("video/split", small_films, "clip", 1e7, note="360p"),
    Case("video/split", large_films, "clip", 1e7, note="1080p"),
)


# -- runs -------------------------------------------------------------------------------------------------------------


def part_of(folder: Path, place: Path) -> Path:
    """A quarter of the files of a folder. Their kinds come in turns of two or four; of these it has all alike."""
    place.mkdir()
    for number, path in enumerate(sorted(p for p in folder.iterdir() if p.is_file())):
        if number % 16 in (0, 5, 10, 15) or path.name == LICENSE.name:
            shutil.copy(path, place / path.name)
    return place


def ran(case: Case, folder: Path, out: Path) -> dict[str, float]:
    """What a run over a folder took and made."""
    files = [p for p in folder.iterdir() if p.is_file()]
    took = curator("run", case.recipe, "--set", case.read.format(folder=folder), "--out", str(out), "--quiet")
    stats: dict[str, Any] = json.loads((out / "_run" / "stats.json").read_text())
    written = [o["size_bytes"] for o in stats["outputs"] if o["port"] == "written"]
    beside = [o["size_bytes"] for o in stats["outputs"] if o["port"] != "written"]
    shutil.rmtree(out)
    return took | {"files": len(files), "records": stats["records"]["in"], "written": stats["records"]["written"],
                   "bytes_in": sum(p.stat().st_size for p in files), "bytes_out": sum(written), "bytes_beside": sum(beside),
                   "busy_s": sum(s["busy_s"] for s in stats["stages"])}


def measure(case: Case, given: Given, repeat: int) -> dict[str, Any]:
    """Figures of an item: what all had more than a quarter, by how many more there were."""
    folder, items = case.data(given)
    with tempfile.TemporaryDirectory(dir=given.place) as place:
        quarter = part_of(folder, Path(place, "quarter"))
        small, whole = (min((ran(case, data, Path(place, f"{data.name}-{n}")) for n in range(repeat)), key=lambda r: r["cpu_s"])
                        for data in (quarter, folder))
    more = {key: whole[key] - small[key] for key in whole}
    many = more["records"] if items is None else items * more["files"] / whole["files"]
    return {"case": case.name, "item": case.item, "scale": case.scale, "items": whole["records"] if items is None else items,
            "records": whole["records"], "written": more["written"] / many, "load": os.getloadavg()[0],
            "start_cpu_s": small["cpu_s"] - small["files"] / more["files"] * more["cpu_s"],
            "core_s": more["cpu_s"] / many, "busy_s": more["busy_s"] / many, "bytes_in": more["bytes_in"] / many,
            "bytes_out": more["bytes_out"] / many, "bytes_beside": more["bytes_beside"] / many}


def at_scale(row: dict[str, Any], price: float) -> dict[str, float]:
    """What so many of its items take."""
    hours = row["core_s"] * row["scale"] / 3600
    return {"core_hours": hours, "nodes_for_a_day": hours / 24 / NODE_CORES, "price": hours * price,
            "tb_in": row["bytes_in"] * row["scale"] / 1e12, "tb_out": (row["bytes_out"] + row["bytes_beside"]) * row["scale"] / 1e12}


def size(count: float) -> str:
    for unit, least in (("MB", 1e6), ("kB", 1e3)):
        if count >= least:
            return f"{count / least:,.1f} {unit}"
    return f"{count:,.0f} B"


def figure(number: float) -> str:
    """Two digits that count."""
    return f"{float(f'{number:.2g}'):,.6g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="recipes")
    parser.add_argument("--quick", action="store_true", help="little data: whether it runs")
    parser.add_argument("--photos", type=Path, help="a folder of photographs; by default they are made")
    parser.add_argument("--recordings", type=Path, help="a folder of recorded speech; by default it is made")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each, of which the cheapest counts")
    parser.add_argument("--price-cpu-hour", type=float, default=0.04)
    asked = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="cost") as place:
        given = Given(Path(place), asked.quick, asked.photos, asked.recordings)
        print("| recipe | an item | bytes in | records written | bytes out | beside | core-s | busy | start, core-s |")
        print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
        for case in CASES:
            if asked.only and case.recipe not in asked.only.split(","):
                continue
            rows.append(row := measure(case, given, asked.repeat))
            row["at_scale"] = at_scale(row, asked.price_cpu_hour)
            cells = [f"`{case.recipe}`" + case.name.removeprefix(case.recipe), case.item, size(row["bytes_in"]), figure(row["written"]),
                     size(row["bytes_out"]), size(row["bytes_beside"]),
                     *(figure(row[key]) for key in ("core_s", "busy_s", "start_cpu_s"))]
            print(f"| {' | '.join(cells)} |", flush=True)
    print("\n| recipe | items | core-hours | nodes for a day | price | TB in | TB out |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for row in rows:
        print(f"| {row['case']} | {row['scale']:,.0f} | {' | '.join(figure(number) for number in row['at_scale'].values())} |")
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / "cost.json"
    kept = json.loads(path.read_text())["rows"] if asked.only and path.exists() else []
    rows = [row for row in kept if row["case"] not in {one["case"] for one in rows}] + rows
    path.write_text(json.dumps({"cpus": os.cpu_count(), "price_cpu_hour": asked.price_cpu_hour, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
