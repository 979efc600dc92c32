"""Text for a benchmark: what each Python installation holds, as JSON Lines, as files, and as pages of web archives."""

from __future__ import annotations

import gzip
import html
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

CORPUS = Path(__file__).resolve().parent.parent / "examples" / "corpus.py"
ARCHIVE_PAGES = 1000  # of an archive
# What stands around the text of a page; with it a page has some 20 kB, as pages of the web have tens of them.
MENU = "".join(f'<li class="menu-item item-{n}"><a href="/section/{n}.html" title="section {n}">Section {n}</a></li>' for n in range(80))
SCRIPT = "<script>" + "window.queue=window.queue||[];window.queue.push(['page',1]);" * 80 + "</script>"


def documents(path: Path) -> Path:
    """The corpus of `examples/corpus.py` in a file, unless it is there: some thousand records with id, text and kind."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, str(CORPUS), str(path)], check=True, stdout=subprocess.DEVNULL)
    return path


def archives(folder: Path, corpus: Path) -> Path:
    """Its texts as pages, in archives of the form that Common Crawl has, in a folder, unless it is there."""
    if folder.exists():
        return folder
    folder.mkdir(parents=True)
    with corpus.open(encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    for at in range(0, len(records), ARCHIVE_PAGES):
        with (folder / f"{at // ARCHIVE_PAGES:04d}.warc.gz").open("wb") as file:
            file.writelines(_responses(records[at:at + ARCHIVE_PAGES], at))
    return folder


def _responses(records: Sequence[dict[str, str]], first: int) -> Iterator[bytes]:
    """Each answer a member of the gzip file."""
    for number, record in enumerate(records, first):
        paragraphs = "".join(f"<p>{html.escape(part)}</p>\n" for part in record["text"].split("\n\n"))
        page = (f"<!doctype html><html><head><title>{html.escape(record['id'])}</title>{SCRIPT}</head><body><nav><ul>{MENU}</ul></nav>"
                f"<main><article><h1>{html.escape(record['id'])}</h1>{paragraphs}</article></main>"
                f"<footer>Terms, privacy, contact</footer></body></html>").encode()
        block = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n" + page
        head = (f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:00000000-0000-4000-8000-{number:012x}>\r\n"
                f"WARC-Date: 2026-11-22T00:00:00Z\r\nWARC-Target-URI: http://corpus.example/{number}.html\r\n"
                f"Content-Type: application/http; msgtype=response\r\nContent-Length: {len(block)}\r\n\r\n").encode()
        yield gzip.compress(head + block + b"\r\n\r\n", 6, mtime=0)
