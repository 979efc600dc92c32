"""Image files in folders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from curator.io.media.files import Files


@dataclass(kw_only=True)
class ImageFiles(Files):
    """Read image files as they are, one record a file, for `image.decode` or for writing them elsewhere.

    Columns: `id` (a hash of the file's path), `source` (its path), `bytes` (binary: its content) and
    `extension` (its suffix in lower case, without the dot). In a folder, files that end as the formats do
    that `image.decode` reads: .jpg, .jpeg, .jpe, .jfif, .png, .apng, .webp, .gif, .bmp, .dib, .tif, .tiff,
    .ppm, .pgm, .pbm, .pnm, .pfm, .avif. A glob reads what it names, whatever the suffix. A file that cannot
    be read leaves on `failed`, one that is too large on `dropped`, reason `too_large`.

    `path`: files, folders, globs or URLs, one or several. `suffixes`: other suffixes that count in a folder
    (`[.jpg, .heic]`). `max_file_bytes`: the largest file that is read. `storage_options`: what the filesystem
    wants (keys, endpoint). `unit_bytes`: about how much is read, and done again after a crash, as one.
    """

    name = "files"
    default_suffixes: ClassVar[tuple[str, ...]] = (
        ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".apng", ".webp", ".gif", ".bmp", ".dib", ".tif", ".tiff",
        ".ppm", ".pgm", ".pbm", ".pnm", ".pfm", ".avif")
