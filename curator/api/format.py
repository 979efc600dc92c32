"""Numbers, sizes, times and paths as people read them. Plain ASCII, one spelling everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os.path import commonprefix


def count(rows: float) -> str:
    """`1234567` -> `1,234,567`."""
    return f"{rows:,.0f}"


def number(value: float) -> str:
    """A measured value: `44,100`, `1.5`, `0.03333`: four significant digits, and all before the point."""
    return count(value) if 9999.5 <= abs(value) < 1e15 else f"{value:.4g}"


def plural(rows: int, noun: str) -> str:
    """`1 file`, `2,000 files`."""
    return f"{rows:,} {noun}" if rows == 1 else f"{rows:,} {noun}s"


def share(part: float, whole: float) -> str:
    """A part in percent; 0% and 100% are said only when they are exact, nothing when there is no whole."""
    if whole <= 0:
        return ""
    percent = 100 * part / whole
    if part and percent < 0.1:
        return "<0.1%"
    if part < whole and percent > 99.9:
        return ">99.9%"
    return f"{percent:.1f}%"


def rate(per_s: float) -> str:
    """A speed: two significant digits below 10, whole numbers above."""
    return f"{per_s:,.0f}" if per_s >= 10 else f"{per_s:.2g}" if per_s > 0 else ""


def size(n_bytes: float) -> str:
    """`3400000` -> `3.4 MB`; 1 kB is 1000 bytes."""
    if n_bytes < 1000:
        return f"{n_bytes:.0f} B"
    for unit in ("kB", "MB", "GB", "TB"):
        n_bytes /= 1000
        if n_bytes < 999.95:
            return f"{n_bytes:.1f} {unit}"
    return f"{n_bytes / 1000:,.1f} PB"


def duration(seconds: float) -> str:
    """`0.42 s`, `12.3 s`, `2 min 05 s`, `3 h 12 min`, `4 d 06 h`."""
    if seconds < 59.95:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    whole = round(seconds)
    for large, small, length, part in (("min", "s", 60, 1), ("h", "min", 3600, 60)):
        if whole < length * (60 if large == "min" else 24):
            return f"{whole // length} {large} {whole % length // part:02} {small}"
    return f"{whole // 86400:,} d {whole % 86400 // 3600:02} h"


def amount(value: float, seconds: bool) -> str:
    """A sum: `12.3 s`, `2 min 05 s`, `3.4 h`, `101,700 h` of seconds, else as `count`."""
    if not seconds:
        return count(value)
    return (duration(value) if value < 3600 else f"{value / 3600:,.1f} h" if value < 3_600_000
            else f"{value / 3600:,.0f} h")


def short_path(path: str, width: int) -> str:
    """The path in at most `width` characters: its beginning and its last names, the middle left out."""
    if len(path) <= width:
        return path
    scheme, slashes, _ = path.rpartition("://")
    start = scheme + slashes if slashes else "/" if path.startswith("/") else ""
    names = path[len(start):].split("/")
    for head in (f"{start}{names[0]}/...", f"{start}...", "..."):
        for index in range(1, len(names) - 1 - (not names[-1])):
            shortened = f"{head}/{'/'.join(names[index:])}"
            if len(shortened) <= width:
                return shortened
    return shorten(path, width, keep_end=True)


def shorten(text: str, width: int, keep_end: bool = False) -> str:
    """The text in one line of at most `width` characters, cut at the end, or in the middle (`keep_end`)."""
    # cut before the whitespace is joined: a document may be megabytes
    line = " ".join((text if keep_end else text[:4 * width]).split())
    cut = len(line) < len(text) and not keep_end and len(text) > 4 * width
    if len(line) <= width and not cut:
        return line
    if not keep_end:
        return line[:max(0, width - 3)] + "..."
    tail = max(0, width - 3) * 2 // 3
    return line[:max(0, width - 3 - tail)] + "..." + line[len(line) - tail:]


def printable(text: str) -> str:
    """A text of whatever origin without what a terminal would obey."""
    return "".join(c if c.isprintable() else " " for c in text)


def listing(names: Iterable[object], most: int = 5) -> str:
    """`a, b, c and 4 more`."""
    listed = [str(name) for name in names]
    more = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {more:,} more" if more > 0 else "")


def aligned(rows: Sequence[Sequence[str]], words: int = 1) -> list[str]:
    """The rows of a table as lines; the first so many columns are words, the others numbers."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) if at < words else cell.rjust(width)
                      for at, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip()
            for row in rows]


def folder(paths: Iterable[str]) -> str:
    """The deepest folder of all these files, with a slash at the end; empty for the working folder."""
    common = commonprefix([path.split("/")[:-1] for path in paths])  # noqa: RUF071 - of lists, name by name
    return "/".join(common) + "/" if common else ""
