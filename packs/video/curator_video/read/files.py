"""Films in folders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import xxhash

from curator.api.batch import Batch
from curator.api.errors import InputError
from curator.api.stage import Contract, Unit, setting
from curator.io.media.types import extension_of
from curator.io.source import PathSource
from curator.io.units import plan_units

SUFFIXES = [".mp4", ".mov", ".m4v", ".mkv", ".webm", ".avi", ".ts", ".mts", ".m2ts", ".mpg", ".mpeg", ".vob", ".wmv", ".asf", ".flv",
            ".3gp", ".3g2", ".ogv", ".mxf", ".gif"]
_LISTS = (".jsonl", ".ndjson", ".csv", ".parquet", ".tar")  # list films or hold them
COLUMNS = {"id": pa.string(), "source": pa.string(), "path": pa.string(), "extension": pa.string(), "size_bytes": pa.int64()}


@dataclass(kw_only=True)
class VideoFiles(PathSource):
    """List films, one record a file; none is read: the stages that need one open its path and read what they need.

    Columns: `id` (a hash of the file's path), `source` and `path` (its path), `extension` (its suffix in lower
    case, without the dot) and `size_bytes` (int64; null where a server does not tell). In a folder, files that
    end as films do: .mp4, .mov, .m4v, .mkv, .webm, .avi, .ts, .mts, .m2ts, .mpg, .mpeg, .vob, .wmv, .asf, .flv,
    .3gp, .3g2, .ogv, .mxf, .gif. A glob names what it names, whatever the suffix.

    `path`: files, folders, globs or URLs, one or several. `suffixes`: other suffixes that count in a folder
    (`[.mkv]`). `storage_options`: what the filesystem wants (keys, endpoint); the stages that open films want
    them too. `unit_bytes`: about how much is done, and done again after a crash, as one; a film is never divided.
    """

    suffixes: list[str] | None = setting(default=None)

    name = "files"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.suffixes, str) or self.suffixes == []:
            raise ValueError(f"suffixes must be a list of endings such as .mkv, got {self.suffixes!r}")

    def contract(self) -> Contract:
        return Contract(adds=COLUMNS)

    def remarks(self) -> list[str]:
        return [] if self.suffixes else super().remarks()  # they were chosen

    def units(self) -> list[Unit]:
        endings = tuple("." + one.lower().lstrip(".") for one in self.suffixes or SUFFIXES)
        for path in [self.path] if isinstance(self.path, str) else self.path:
            if path.lower().endswith(_LISTS) and not path.lower().endswith(endings):
                raise InputError(f"{path} is no film. If it lists films: --set read='{{video.manifest: {{path: {path}}}}}'; "
                                 f"if it is a shard of them: --set read='{{webdataset: {{path: {path}}}}}'")
        return plan_units(self.found(endings), self.unit_bytes)

    def read(self, unit: Unit) -> Iterator[Batch]:
        paths = [part.uri for part in unit.parts]
        rows = {"id": [xxhash.xxh3_64_hexdigest(part.uri.encode()) for part in unit.parts],
                "source": paths, "path": paths, "extension": [extension_of(path) for path in paths],
                "size_bytes": [part.size_bytes or None for part in unit.parts]}
        yield Batch(rows=pa.table({name: pa.array(rows[name], kind) for name, kind in COLUMNS.items()}))
