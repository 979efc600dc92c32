"""Text for a benchmark: what each Python installation holds, as JSON Lines, as files, and as pages of web archives."""

from __future__ import annotations

import gzip
import html
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

CORPUS = Path(__file__).resolve().parent.parent / "examples" / "corpus.py"
PARTS = 8  # files of each kind; every eighth document in turn, so that they are alike
# What stands around the text of a page; with it a page has some 20 kB, as pages of the web have tens of them.
MENU = "".join(f'<li class="menu-item item-{n}"><a href="/section/{n}.html" title="section {n}">Section {n}</a></li>' for n in range(80))
SCRIPT = "<script>" + "window.queue=window.queue||[];window.queue.push(['page',1]);" * 80 + "</script>"


def documents(path: Path) -> Path:
    """The corpus of `examples/corpus.py` in a file, unless it is there: some thousand records with id, text and kind."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, str(CORPUS), str(path)], check=True, stdout=subprocess.DEVNULL)
    return path


def records(corpus: Path) -> list[dict[str, str]]:
    with corpus.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def pieces(folder: Path, corpus: Path) -> Path:
    """The corpus as several files of JSON Lines in a folder, unless it is there."""
    if folder.exists():
        return folder
    folder.mkdir(parents=True)
    lines = corpus.read_text(encoding="utf-8").splitlines(keepends=True)
    for part in range(PARTS):
        (folder / f"{part:04d}.jsonl").write_text("".join(lines[part::PARTS]), encoding="utf-8")
    return folder


def archives(folder: Path, corpus: Path) -> Path:
    """Its texts as pages, in archives of the form that Common Crawl has, in a folder, unless it is there."""
    if folder.exists():
        return folder
    folder.mkdir(parents=True)
    every = list(enumerate(records(corpus)))
    for part in range(PARTS):
        with (folder / f"{part:04d}.warc.gz").open("wb") as file:
            file.writelines(_responses(every[part::PARTS]))
    return folder


def _responses(numbered: Iterable[tuple[int, dict[str, str]]]) -> Iterator[bytes]:
    """Each answer a member of the gzip file."""
    for number, record in numbered:
        paragraphs = "".join(f"<p>{html.escape(part)}</p>\n" for part in record["text"].split("\n\n"))
        page = (f"<!doctype html><html><head><title>{html.escape(record['id'])}</title>{SCRIPT}</head><body><nav><ul>{MENU}</ul></nav>"
                f"<main><article><h1>{html.escape(record['id'])}</h1>{paragraphs}</article></main>"
                f"<footer>Terms, privacy, contact</footer></body></html>").encode()
        block = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n" + page
        head = (f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:00000000-0000-4000-8000-{number:012x}>\r\n"
                f"WARC-Date: 2026-11-22T00:00:00Z\r\nWARC-Target-URI: http://corpus.example/{number}.html\r\n"
                f"Content-Type: application/http; msgtype=response\r\nContent-Length: {len(block)}\r\n\r\n").encode()
        yield gzip.compress(head + block + b"\r\n\r\n", 6, mtime=0)
