"""Paths that a stranger wrote, kept below a folder that the user named."""

from __future__ import annotations

import os
from urllib.parse import unquote


def located(path: str, root: str) -> str | None:
    """The path or URL that `path`, absolute or relative to `root`, means; None if it does not lie below
    `root`.

    On this disk `..` and links are followed before that is asked. In a bucket `..` is never followed, so a
    path that has it is outside. `file://` is this disk.

    Raises:
        ValueError: it is no path (it holds a NUL).
    """
    if path.lower().startswith("file://"):
        path = unquote(path[len("file://"):].removeprefix("localhost"))
    if "://" not in root:
        if "://" in path:
            return None
        base = os.path.realpath(os.path.expanduser(root))
        full = os.path.realpath(os.path.join(base, path))
        return full if os.path.commonpath([base, full]) == base else None
    base = root if root.endswith("/") else root + "/"
    full = path if "://" in path or path.startswith("/") else base + path
    return full if full.startswith(base) and ".." not in full.split("/") else None
