"""A server of archives in this process: files with ranges, and an index server as Common Crawl has it."""

from __future__ import annotations

import gzip
import json
import re
from urllib.parse import parse_qs, urlsplit

from tests.stages.web_server import Web, page


class Archives(Web):
    """`files`: contents by path. `busy`: how many requests of a path are answered 503 first. `without_ranges`: paths that are
    sent whole. `parts`: the ranges that were asked for, by path."""

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        super().__init__()
        self.busy: dict[str, int] = {}
        self.without_ranges: set[str] = set()
        self.parts: dict[str, list[tuple[int, int]]] = {}
        for path, data in (files or {}).items():
            self.put(path, data)

    def put(self, path: str, data: bytes) -> None:
        self.pages[f"/{path}"] = lambda handler: self._file(handler, path, data)

    def _file(self, handler, path: str, data: bytes) -> None:
        if self.busy.get(path, 0):
            self.busy[path] -= 1
            return page(b"slow down", status=503, Retry_After="0")(handler)
        asked = re.match(r"bytes=(\d+)-(\d+)$", handler.headers.get("Range", ""))
        if not asked or path in self.without_ranges:
            return page(data, Content_Type="application/octet-stream")(handler)
        start, stop = int(asked[1]), min(int(asked[2]) + 1, len(data))
        self.parts.setdefault(path, []).append((start, stop))
        if start >= len(data):
            return page(b"", status=416)(handler)
        return page(data[start:stop], status=206, Content_Range=f"bytes {start}-{stop - 1}/{len(data)}", ETag=f'"{len(data)}"')(handler)

    def index(self, snapshot: str, entries: list[dict], page_lines: int = 2) -> None:
        """The index of a crawl: pages of so many lines; it filters as pywb does."""
        def answer(handler) -> None:
            asked = parse_qs(urlsplit(handler.path).query)
            pattern = asked["url"][0]
            host = pattern.removeprefix("*.").partition("/")[0]
            found = [e for e in entries if host in e["url"]]
            if "showNumPages" in asked:
                count = -(-len(found) // page_lines)
                return page(json.dumps({"pages": count, "pageSize": 1, "blocks": count}).encode())(handler)
            at = int(asked["page"][0]) * page_lines
            found = found[at:at + page_lines]
            for one in asked.get("filter", []):
                field, _, expression = one.lstrip("~=").partition(":")
                matches = re.match if one.startswith("~") else re.fullmatch
                found = [e for e in found if matches(expression, e[field])]
            if not found:
                return page(b'{"message": "No Captures found"}', status=404)(handler)
            return page("".join(json.dumps(e) + "\n" for e in found).encode())(handler)

        self.pages[f"/{snapshot}-index"] = answer


def paths_gz(*paths: str) -> bytes:
    return gzip.compress("".join(f"{path}\n" for path in paths).encode(), mtime=0)
