"""Audio files in folders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from curator.api.batch import Batch
from curator.api.stage import Contract, Outputs, Unit, setting
from curator.io.media.files import ARROW_BYTES, Files
from curator.io.source import PathSource

SUFFIXES = [".wav", ".flac", ".mp3", ".ogg", ".oga", ".opus", ".m4a", ".aac", ".mp4", ".webm", ".mka", ".wma", ".aiff", ".aif", ".au",
            ".caf", ".w64", ".amr"]


@dataclass(kw_only=True)
class AudioFiles(PathSource):
    """Read audio files as they are, one record a file, for `audio.decode` or for writing them elsewhere.

    Columns: `id` (a hash of the file's path), `source` and `path` (its path), `extension` (its suffix in
    lower case, without the dot), `size_bytes` (int64) and `bytes` (binary: its content; null where it has
    more than `inline_bytes`: then only the path travels, and whoever decodes it reads the file bit by bit).
    In a folder, files that end as sound does: .wav, .flac, .mp3, .ogg, .oga, .opus, .m4a, .aac, .mp4, .webm,
    .mka, .wma, .aiff, .aif, .au, .caf, .w64, .amr. A glob reads what it names, whatever the suffix, unless it ends in `**`. A file
    that cannot be read leaves on `failed`.

    `path`: files, folders, globs or URLs, one or several. `suffixes`: other suffixes that count in a folder
    (`[.mkv, .mov]`: of video files the sound is decoded). `inline_bytes`: the largest file whose bytes
    travel. `storage_options`: what the filesystem wants (keys, endpoint); `audio.decode` wants them too.
    `unit_bytes`: about how much is read, and done again after a crash, as one.
    """

    suffixes: list[str] | None = setting(default=None)
    inline_bytes: int = 64 << 20

    name = "files"

    def __post_init__(self) -> None:
        if not 1 <= self.inline_bytes <= ARROW_BYTES:
            raise ValueError(f"inline_bytes must be from 1 to {ARROW_BYTES:,}, got {self.inline_bytes}")
        self.path = self._files().path

    def contract(self) -> Contract:
        return Contract(adds={"id": pa.string(), "source": pa.string(), "path": pa.string(), "extension": pa.string(),
                              "size_bytes": pa.int64(), "bytes": pa.binary()})

    def remarks(self) -> list[str]:
        return [] if self.suffixes else super().remarks()  # they were chosen

    def units(self) -> list[Unit]:
        files = self._files()
        files.not_read = self.not_read
        units, self.passed = files.units(), files.passed
        return units

    def read(self, unit: Unit) -> Iterator[Outputs]:
        sizes = {part.uri: part.size_bytes for part in unit.parts}
        for outputs in self._files().read(unit):
            if "failed" in outputs:
                yield outputs
            else:
                (rows,) = outputs.values()  # read, or `dropped` since they are too large to travel
                yield Outputs(out=self._with_path(rows, sizes))

    def _with_path(self, rows: Batch, sizes: dict[str, int]) -> Batch:
        paths, contents = rows.column("source"), rows.rows.column("bytes")
        found = [sizes.get(path) or (len(content.as_buffer()) if content.is_valid else None)
                 for path, content in zip(paths, contents, strict=True)]
        made = rows.with_columns({"path": pa.array(paths, pa.string()), "size_bytes": pa.array(found, pa.int64())})
        return made.select(["path", "extension", "size_bytes", "bytes"])

    def _files(self) -> Files:
        return Files(path=self.path, suffixes=SUFFIXES if self.suffixes is None else self.suffixes, max_file_bytes=self.inline_bytes,
                     storage_options=self.storage_options, unit_bytes=self.unit_bytes)
