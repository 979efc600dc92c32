"""Near deduplication beside datatrove and text-dedup: how good, how fast, how large, on documents whose look-alikes are known.

    python benchmarks/dedup.py [--only quality,curve,signatures,speed] [--tools ours,datatrove,text-dedup] [--text FOLDER]
                               [--docs 20000] [--quality-docs 6000] [--seed 1]

Makes a virtual environment for each peer beside this file (once; delete it to get newer ones) with what the package index has.
Results are printed, and written to benchmarks/results/dedup.json, which keeps what it has of other rows and tools. Linux; about
half an hour on two cores. dedup_truth.py plants look-alikes in real text, that of --text or else what each Python installation
holds, and counts the exact similarity of all pairs. What the figures mean is said in dedup_metrics.py, how each tool is asked in
dedup_peers/.

- `quality`: at thresholds of 0.7, 0.8 and 0.9. Each tool with bands of 14 x 8, and with those that suit the threshold: ours by
  its own default for the signature's 112 hashes, the peers by the rule of datasketch (least area of errors), which text-dedup
  has. `removals` count on all records; pairs, `core` and `ari` leave chains out, which have their own column.
- `curve`: how many of the planted pairs come into one cluster by similarity, with 14 x 8, beside the S-curve of the bands. Ours
  is asked for everything above 0.3, so that its verification plays no part.
- `signatures`: documents per CPU-second of one process.
- `speed`: from files to written survivors, with two workers: seconds, CPU-seconds of all processes, and peak memory. Ours also
  writes the duplicates with what they are duplicates of, and verifies; of the peers only `text-dedup:verified` does the latter.

The data sets by which text-dedup is judged in its README, CORE and NEWS-COPY, must be downloaded and are not used here; their
measures are: `core` and `ari`. Its published figures (CORE 0.952, NEWS-COPY 0.729) are on other documents and not comparable.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dedup_metrics as metrics
import dedup_truth
import numpy as np
import peers
from engine import REAP, Watch, newest_python, sweep

HERE = Path(__file__).resolve().parent
TOOLS = ("ours", "datatrove", "text-dedup")
PACKAGES = {"datatrove": ("datatrove[io,processing]", "spacy>=3.8,<3.9", "setuptools<81", "orjson"),
            "text-dedup": ("text-dedup",)}
THRESHOLDS = (0.7, 0.8, 0.9)
HASHES = 112
LIMIT_S = 1800
WORKERS = 2


@dataclass(frozen=True)
class Ask:
    """One way to ask a tool: `name` as in the tables."""

    tool: str
    variant: str = ""
    bands: int | None = 14
    rows: int | None = 8
    threshold: float = 0.8
    chars: int | None = None
    label: str = ""

    @property
    def name(self) -> str:
        return ":".join(filter(None, (self.tool, self.variant, self.label)))


# -- runs -----------------------------------------------------------------------------------------------------------


def call(ask: Ask, task: str, corpus: Path, place: Path, *, clusters: bool = False, watched: bool = False) -> dict[str, Any]:
    """Have a tool do a task: its answer, and what it took. A run that fails or takes too long is a result: `error` says it."""
    try:
        base = newest_python() if ask.tool == "text-dedup" else sys.executable
        python = peers.python_of(ask.tool, "dedup", PACKAGES.get(ask.tool, ()), base)
    except subprocess.CalledProcessError as error:
        return {"error": "does not install: " + str(error.stderr).strip()[-300:]}
    script = HERE / "dedup_peers" / f"run_{ask.tool.replace('-', '_')}.py"
    job = {"corpus": str(corpus), "place": str(place), "threshold": ask.threshold, "bands": ask.bands, "rows": ask.rows,
           "chars": ask.chars, "workers": WORKERS, "clusters": clusters, "variant": ask.variant}
    environment = peers.environment_of(ask.tool) | {"HF_HOME": str(place / "hf")}
    before, began, watch = peers.cpu_seconds(), time.monotonic(), Watch()
    with (place / "output").open("ab") as output:
        process = subprocess.Popen([python, str(script), task, json.dumps(job)], stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT, env=environment, start_new_session=True, cwd=place)
    while process.poll() is None and time.monotonic() - began < LIMIT_S:
        if watched:
            watch.look()
        time.sleep(0.1)
    seconds = time.monotonic() - began
    ended = process.poll() is not None
    sweep()
    figures = {"seconds": seconds, "cpu_s": peers.cpu_seconds() - before, **({"peak_mb": watch.peak / 1e6} if watched else {})}
    try:
        return json.loads((place / f"{task}.json").read_text(encoding="utf-8")) | figures
    except OSError:
        lines = (place / "output").read_text(errors="replace").strip().splitlines()
        return {"error": " ".join(lines[-3:])[-300:] if ended else f"did not finish in {LIMIT_S} s"} | figures


def answer(ask: Ask, folder: Path) -> dict[str, Any]:
    """What a tool kept of a corpus, and its clusters; or its `error`."""
    with tempfile.TemporaryDirectory(prefix="dedup") as place:
        done = call(ask, "dedup", folder / "corpus", Path(place), clusters=True)
        return done if "error" in done else call(ask, "read", folder / "corpus", Path(place)) | {"seconds": done["seconds"]}


def suited(threshold: float, hashes: int = HASHES) -> tuple[int, int]:
    """Bands and rows for a threshold: those with the least area of false positives below it and false negatives above it.

    Source: datasketch's MinHashLSH, weights of one half; text-dedup has the same rule.
    """
    grid = (np.arange(2000) + 0.5) / 2000
    below = grid < threshold
    choices = [(b, r) for b in range(1, hashes + 1) for r in range(1, hashes // b + 1)]
    return min(choices, key=lambda c: np.where(below, hit := 1 - (1 - grid ** c[1]) ** c[0], 1 - hit).sum())


# -- rows -----------------------------------------------------------------------------------------------------------


Found = Iterator[tuple[tuple[str, ...], dict[str, Any]]]  # figures, and the keys under which they stand in the results


def quality(folder: Path, tools: list[str]) -> Found:
    """Each tool's figures by threshold and way of asking."""
    truth = metrics.Truth.read(folder)
    answers: dict[str, dict] = {}
    for threshold in THRESHOLDS:
        bands, rows = suited(threshold)
        asks = [Ask("ours", "", None, None, threshold), Ask("ours", "exact", None, None, threshold),
                Ask("ours", "components", None, None, threshold), Ask("ours", "", 14, 8, threshold, label="14x8"),
                *(Ask(tool, variant, b, r, threshold, label=f"{b}x{r}") for b, r in ((14, 8), (bands, rows))
                  for tool, variant in (("datatrove", ""), ("text-dedup", ""), ("text-dedup", "verified")))]
        alike = int((truth.jaccard >= threshold).sum())
        print(f"quality at {threshold}: {len(truth.ids):,} records, {alike:,} pairs", flush=True)
        heading("removals P", "R", "F1", "P-0.1", "lost", "pairs F1", "core", "macro F1", "ARI", "chains", "templates")
        for ask in (a for a in asks if a.tool in tools):
            told = answers.get(ask.name) or answer(ask, folder)
            if ask.tool != "ours" and not ask.variant:
                answers[ask.name] = told  # these know no threshold but their bands
            result = told if "error" in told else judged(truth, told, threshold)
            yield (f"{threshold}", ask.name), result
            show(ask.name, result, "precision", "recall", "f1", "precision_near", "lost", "pairs_f1", "core",
                 "macro_f1", "ari", "chains_merged", "templates_lost")


def judged(truth: metrics.Truth, told: dict[str, Any], threshold: float) -> dict[str, Any]:
    given = metrics.Answer.of(told, truth.ids)
    fair = truth.without_chains(given)
    pairs, core = metrics.pairs(*fair, threshold), metrics.core(*fair, threshold)
    return metrics.removals(truth, given, threshold) | {
        "pairs_precision": pairs["precision"], "pairs_recall": pairs["recall"], "pairs_f1": pairs["f1"],
        "core": core["as_published"], "macro_f1": core["macro_f1"], "ari": metrics.clusters(*fair, threshold),
        "chains_merged": metrics.chains_merged(truth, given),
        "templates_lost": metrics.lost(truth, given, "template"), "seconds": told["seconds"]}


def curve(folder: Path, tools: list[str]) -> Found:
    """Found shares of the planted pairs by level, beside what bands and rows promise."""
    truth = metrics.Truth.read(folder)
    print("planted pairs in one cluster, by similarity, 14 bands of 8 rows", flush=True)
    heading(*(f"{level:.2f}" for level in dedup_truth.LEVELS))
    alone = {"kept": truth.ids, "clusters": {}}
    promised = metrics.by_level(truth, metrics.Answer.of(alone, truth.ids), 14, 8)
    for line in ("expected", "least"):
        show(f"S-curve, {line}", {at: value[line] for at, value in promised.items()}, *promised)
    asks = (Ask("ours", "components", threshold=0.3), Ask("datatrove"), Ask("text-dedup"))
    for ask in (a for a in asks if a.tool in tools):
        told = answer(ask, folder)
        if "error" not in told:
            told = metrics.by_level(truth, metrics.Answer.of(told, truth.ids), ask.bands, ask.rows)
        yield (ask.name,), told
        show(ask.name, told if "error" in told else {at: value["found"] for at, value in told.items()}, *told)


def signatures(folder: Path, tools: list[str]) -> Found:
    print("signatures only, one process", flush=True)
    heading("docs/CPU-s", "MB/CPU-s")
    asks = [*(Ask(tool, bands=b, rows=r, label=f"{b}x{r}") for b, r in ((14, 8), (20, 13)) for tool in TOOLS),
            Ask("ours", bands=20, rows=13, chars=24, label="20x13 of 24 chars")]
    for ask in (a for a in asks if a.tool in tools):
        with tempfile.TemporaryDirectory(prefix="dedup") as place:
            told = call(ask, "signatures", folder / "corpus", Path(place))
        yield (ask.name,), told
        show(ask.name, told, "docs_per_cpu_s", "mb_per_cpu_s")


def speed(folders: dict[int, Path], tools: list[str]) -> Found:
    """Whole deduplications, of a quarter of the documents and of all. `bytes_per_doc`: how much the peak grows between."""
    before: dict[str, tuple[int, float]] = {}
    asks = [*(Ask(tool, variant, b, r, label=f"{b}x{r}") for b, r in ((14, 8), (20, 13))
              for tool, variant in (("ours", ""), ("datatrove", ""), ("text-dedup", ""))),
            Ask("ours", "exact", label="14x8"), Ask("text-dedup", "verified", label="14x8"),
            Ask("ours", bands=20, rows=13, chars=24, label="20x13 of 24 chars")]
    for docs, folder in folders.items():
        print(f"files to survivors, {docs:,} documents, {WORKERS} workers", flush=True)
        heading("seconds", "CPU-s", "docs/s", "docs/CPU-s", "peak MB", "bytes/doc")
        for ask in (a for a in asks if a.tool in tools):
            with tempfile.TemporaryDirectory(prefix="dedup") as place:
                told = call(ask, "dedup", folder / "corpus", Path(place), watched=True)
            if "error" not in told:
                told |= {"docs_per_s": docs / told["seconds"], "docs_per_cpu_s": docs / told["cpu_s"]}
                if ask.name in before:
                    smaller, peak_mb = before[ask.name]
                    told["bytes_per_doc"] = (told["peak_mb"] - peak_mb) * 1e6 / (docs - smaller)
                before[ask.name] = docs, told["peak_mb"]
            yield (ask.name, f"{docs}"), told
            show(ask.name, told, "seconds", "cpu_s", "docs_per_s", "docs_per_cpu_s", "peak_mb", "bytes_per_doc")


# -- tables ---------------------------------------------------------------------------------------------------------


def heading(*names: str) -> None:
    print(" " * 28 + "".join(f"{name:>12}" for name in names), flush=True)


def show(name: str, result: dict[str, Any], *figures: str) -> None:
    if "error" in result:
        print(f"  {name:26} {result['error']}", flush=True)
        return
    told = (result.get(figure, "") for figure in figures)
    print(f"  {name:26}" + "".join(f"{n:12.3f}" if isinstance(n, float) and n < 10 else f"{n:12,.0f}" if n != "" else f"{'':12}"
                                    for n in told), flush=True)


def prepared(texts: list[str], docs: int, told: argparse.Namespace, place: Path, plain: bool) -> Path:
    folder = place / f"{docs}-{'plain' if plain else 'written'}"
    if not folder.exists():
        dedup_truth.write(dedup_truth.plant(texts, docs, told.seed, plain), folder, truth=plain)
    return folder


def rows(told: argparse.Namespace, place: Path) -> Found:
    """The figures of each row asked for, as they come."""
    texts, tools = dedup_truth.read_texts(told.text), told.tools.split(",")
    for name in told.only.split(","):
        if name == "speed":
            sizes = (told.docs // 4, told.docs)
            found = speed({docs: prepared(texts, docs, told, place, plain=False) for docs in sizes}, tools)
        elif name == "signatures":
            found = signatures(prepared(texts, told.docs // 4, told, place, plain=False), tools)
        else:
            row = {"quality": quality, "curve": curve}[name]
            found = row(prepared(texts, told.quality_docs, told, place, plain=True), tools)
        yield from (((name, *keys), result) for keys, result in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="quality,curve,signatures,speed", help="rows")
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--text", type=Path, help="a folder of texts; by default those of each Python installation")
    parser.add_argument("--docs", type=int, default=20_000, help="of signatures and speed")
    parser.add_argument("--quality-docs", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=1)
    told = parser.parse_args()
    ctypes.CDLL(None).prctl(REAP, 1, 0, 0, 0)
    place = Path(tempfile.mkdtemp(prefix="dedup"))
    try:
        peers.keep("dedup", rows(told, place))
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
