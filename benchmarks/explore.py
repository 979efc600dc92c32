"""How long `curator explore` takes to answer, and how much memory, over a run of many records.

    python benchmarks/explore.py --rows 10000000 --keep /tmp/explore-run

Makes a run (its input is made up: ids, sources, languages, ten scores, a text), serves it in a process of its own,
and asks what the page asks: first sight, histograms with a rule, what a moved threshold would change, pages by every
way and far down, filters, a record. With --keep the run stays there for the next time.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import tempfile
import time
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path

RECIPE = """
name: made up
read: {{parquet: {{path: {folder}/in/*.parquet}}}}
steps:
- drop: {{short: words < 50, repeated: repeated > 0.3, odd: alpha < 0.6 AND language <> 'ja'}}
  with: {{name: quality}}
- drop: {{unclear: score < 0.2}}
  with: {{name: language}}
write: parquet
out: {folder}/out
"""


def make(folder: Path, rows: int) -> None:
    """Input by DuckDB, and a run over it."""
    import duckdb

    from curator import load

    (folder / "in").mkdir(parents=True)
    part = 1_000_000
    for first in range(0, rows, part):
        scores = ", ".join(f"random() AS s{i}" for i in range(6))
        duckdb.sql(f"""COPY (SELECT printf('%016x', hash(i)) AS id, 'crawl/' || (i % 40) || '.warc.gz' AS source,
            ['en', 'de', 'fr', 'ja', 'zh'][1 + (i % 7) % 5] AS language, CAST(exp(3 + 5 * random()) AS INTEGER) AS words,
            random() * random() AS repeated, 1 - 0.6 * random() * random() AS alpha, random() AS score, {scores},
            'https://example.org/' || i AS url, repeat(md5(CAST(i AS VARCHAR)) || ' ', 8) AS text
            FROM range({first}, {min(rows, first + part)}) t(i)) TO '{folder}/in/{first:010}.parquet' (ROW_GROUP_SIZE 100000)""")
    load(RECIPE.format(folder=folder)).run()
    shutil.rmtree(folder / "in")


def serve(path: str, pipe) -> None:
    from curator.explore.questions import Questions
    from curator.explore.server import Server
    from curator.results.output import RunOutput

    began = time.perf_counter()
    with Server(Questions(RunOutput.open(path))) as server:
        pipe.send((server.url, time.perf_counter() - began))
        server.serve_forever()


class Browser:
    def __init__(self, url: str) -> None:
        self.base = url.partition("?")[0]
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        cookie = self.opener.open(url).headers["Set-Cookie"].partition(";")[0]
        self.headers = {"Content-Type": "application/json", "Cookie": cookie}
        self.took: dict[str, list[float]] = {}

    def ask(self, what: str, name: str, **given) -> dict:
        request = urllib.request.Request(f"{self.base}api/{name}", json.dumps(given).encode(), self.headers)
        began = time.perf_counter()
        answer = json.loads(self.opener.open(request).read())
        self.took.setdefault(what, []).append(time.perf_counter() - began)
        return answer


def look(browser: Browser) -> None:
    told = browser.ask("first sight of the run", "run")
    for column in ("_place", "_stage", "reason", "language", "source"):
        browser.ask("values to filter by, a column", "counts", by=column)
    for rule in told["rules"]:
        browser.ask("histogram of a rule", "histogram", rule={"stage": rule["stage"], "reason": rule["reason"], "at": 0})
    for i in range(6):
        browser.ask("histogram of a score", "histogram", column=f"s{i}")
    short = {"stage": "quality", "reason": "short"}
    for value in (40, 60, 100):
        browser.ask("exact counts of a moved threshold", "what_if", changes=[{**short, "values": [value]}])
        browser.ask("records nearest to it", "near", rule={**short, "at": 0}, value=value)
    for sort, middle in (("", None), ("words", 300), ("s3", 0.5)):
        found = browser.ask(f"first page by {sort or 'id'}", "page", sort=sort, limit=48)
        browser.ask(f"second page by {sort or 'id'}", "page", sort=sort, after=found["next"], limit=48)
        far = json.dumps([middle, "8" * 16, 0])  # as if one had paged to the middle
        found = browser.ask(f"page from the middle by {sort or 'id'}", "page", sort=sort, after=far, limit=48)
    browser.ask("page with a condition in SQL", "page", filter={"where": "words > 1000 AND s1 * s2 > 0.9 AND language = 'ja'"}, limit=48)
    browser.ask("search in ids, URLs and texts", "page", filter={"search": found["rows"][0]["id"]}, limit=48)
    browser.ask("one record", "record", id=found["rows"][0]["id"])
    browser.ask("groups by source", "counts", by="source")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    folder = options.keep or Path(tempfile.mkdtemp())
    if not (folder / "out" / "_run").exists():
        began = time.perf_counter()
        make(folder, options.rows)
        print(f"made {options.rows:,} records in {time.perf_counter() - began:.0f} s")
    size = sum(f.stat().st_size for f in (folder / "out").rglob("*.parquet"))
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(str(folder / "out"), theirs), daemon=True)
    process.start()
    url, took = ours.recv()
    browser = Browser(url)
    look(browser)
    status = Path(f"/proc/{process.pid}/status").read_text()
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    process.terminate()
    print(f"{size / 1e9:.2f} GB of Parquet, {os.cpu_count()} cores, {took:.2f} s to open, {peak / 1e3:.0f} MB of memory at the most")
    for what, times in browser.took.items():
        print(f"{max(times):8.2f} s at most, {sum(times) / len(times):6.2f} s on average of {len(times):2}   {what}")
    if not options.keep:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
