"""Shards of several files that are read side by side: what lhotse shar and tarred sets of NeMo share."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from curator.api.batch import Batch
from curator.api.errors import InputError
from curator.api.stage import Outputs, SourceRange, Unit
from curator.io.files.compression import DamagedStream
from curator.io.files.faults import explained
from curator.io.files.folder import FileInfo, open_input
from curator.io.media.files import ARROW_BYTES
from curator.io.media.sample_table import Sample, SampleTable
from curator.io.media.tar import Damage, Member, TarReader
from curator.io.source import LASTING, FileSource
from curator.io.tables.columns import Seen
from curator.io.tables.records import PIECE_BYTES, PIECE_ROWS, Failure, as_records, excerpt, failed_rows, pieces

MISSING = object()
_HEAD_RECORDS, _HEAD_BYTES = 100, 4 << 20  # looked at before a run, of each of some shards
_ORIGINAL = {b"RIFF": "wav", b"fLaC": "flac", b"OggS": "ogg", b"ID3": "mp3"}  # lhotse calls these `original`


@dataclass
class Gathered:
    """Records of a shard, what else is wrong with it, and records that go to `dropped`, by reason."""

    samples: list[Sample] = field(default_factory=list)
    faults: list[Failure] = field(default_factory=list)
    dropped: dict[str, list[Sample]] = field(default_factory=dict)
    size: int = 0

    def add(self, sample: Sample) -> None:
        self.samples.append(sample)
        self.size += sample.size

    def is_full(self, more: int) -> bool:
        """Whether it is time to let it go before something of so many bytes is added."""
        return bool(self.samples) and (len(self.samples) >= PIECE_ROWS or self.size + more > PIECE_BYTES)


@dataclass(kw_only=True)
class ShardSource(FileSource):
    """Records from shards that are several files each. Subclasses say which (`grouped`) and read one
    (`gather`)."""

    max_record_bytes: int = 256 << 20

    _shards = dict[str, tuple[FileInfo, ...]]()  # no field: by first file; made by `_files`, until `units`

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.max_record_bytes <= ARROW_BYTES:
            raise ValueError(f"max_record_bytes is from 1 to {ARROW_BYTES:,}, got {self.max_record_bytes}")

    def grouped(self, files: Sequence[FileInfo]) -> list[tuple[FileInfo, ...]]:
        """The files of each shard, the one with the records first."""
        raise TypeError(f"{type(self).__name__} has no grouped method")

    def gather(self, uris: Sequence[str]) -> Iterator[Gathered]:
        """The records of a shard, a few MB at a time."""
        raise TypeError(f"{type(self).__name__} has no gather method")

    def units(self) -> list[Unit]:
        files = self._files()
        self._look(files)
        shards, self._shards = self._shards, {}
        return [Unit(tuple(SourceRange(uri=one.uri, size_bytes=one.size_bytes, version=one.version)
                           for one in shards[file.uri])) for file in files]

    def read(self, unit: Unit) -> Iterator[Batch | Outputs]:
        uri = unit.parts[0].uri
        table = SampleTable(uri, self.seen, self.max_record_bytes, self.wanted())
        try:
            for found in self.gather([part.uri for part in unit.parts]):
                records, wrong = self._records(uri, table, found.samples)
                yield from records
                for reason, samples in found.dropped.items():
                    records, more = self._records(uri, table, samples)
                    wrong += more
                    yield from (Outputs(dropped=batch.with_reason(reason)) for batch in records)
                if wrong or found.faults:
                    yield Outputs(failed=failed_rows(uri, wrong + found.faults))
        except InputError as error:
            if not isinstance(error.__cause__, (type(None), *LASTING)):
                raise  # it may go away: the engine tries the unit again
            yield Outputs(failed=failed_rows(uri, [Failure(uri, None, error)]))

    def head(self, file: FileInfo) -> list[tuple[str, Seen]]:
        found = Gathered()
        with explained("read", file.uri):
            for one in self.gather([part.uri for part in self._shards.get(file.uri, (file,))]):
                found.samples += one.samples
                found.faults += one.faults
                found.size += one.size
                if len(found.samples) >= _HEAD_RECORDS or found.size >= _HEAD_BYTES:
                    break
        made = SampleTable(file.uri, {}, self.max_record_bytes, self.wanted()).make(found.samples)
        if not len(made.positions) and (wrong := made.failures + found.faults):
            raise InputError(f"{file.uri}: none of its first {len(wrong)} records can be read. {wrong[0].error}")
        keyed = any(b'"key"' in (sample.json or b"") for sample in found.samples)
        return [(one.name, Seen(one.type, file.uri)) for one in made.rows.schema if one.name != "key" or keyed]

    def _files(self) -> list[FileInfo]:
        """The first file of each shard; what belongs to it is in `_shards`."""
        shards = self.grouped(super()._files())
        self._shards = {shard[0].uri: shard for shard in shards}
        return [shard[0] for shard in shards]

    def _records(self, uri: str, table: SampleTable,
                 samples: Sequence[Sample]) -> tuple[list[Batch], list[Failure]]:
        if not samples:
            return [], []
        made = table.make(samples)
        named = [name for name in made.rows.column_names if name != "key" or name in self.seen]
        rows = made.rows.select(named)
        return list(pieces(as_records(rows, uri, made.positions, self.id_column))), list(made.failures)



@dataclass(slots=True)
class Found:
    """What a field has for a cut. `data`, `extension`, `manifest`: of an archive; `value`: of lines."""

    data: bytes | None = None
    extension: str | None = None
    manifest: str | None = None
    value: Any = None


class Places:
    """Where each cut stands in its shard; looked up when something is not where it belongs, as that reads all."""

    def __init__(self, ids: Callable[[], Iterable[str | None]]) -> None:
        self._ids = ids
        self._places: dict[str | None, int] | None = None

    def __getitem__(self, key: str) -> int:
        """Its last place, -1 for no cut of the shard."""
        if self._places is None:
            self._places = {one: at for at, one in enumerate(self._ids())}
        return self._places.get(key, -1)


class Field:
    """A file of a shard, read beside its cuts."""

    def __init__(self, uri: str, places: Places, options: dict[str, Any] | None,
                 wanted: Collection[str] | None, most_bytes: int) -> None:
        self.uri, self.name = uri, uri.rpartition("/")[2].partition(".")[0]
        self._places, self._options, self._most_bytes = places, options, most_bytes
        self._column = "bytes" if self.name == "recording" else self.name
        self._wanted = wanted is None or self._column in wanted
        self._in_archive = ".tar" in uri.rpartition("/")[2]
        self._faults: list[Failure] = []
        self._pairs = self._members() if self._in_archive else self._lines()
        self._next = next(self._pairs, None)

    def of(self, position: int, key: str) -> Any:
        """`Found` for the cut of this id, at this place among the cuts; MISSING, or the error that it has."""
        while self._next is not None:
            name, offset, found = self._next
            if name != key and self._places[name] > position:
                break  # it belongs to a later cut
            self._next = next(self._pairs, None)
            if name == key:
                return found
            self._fault(offset, ValueError(f"{name!r} belongs to no cut, or not in this place"))
        return MISSING

    def finish(self) -> list[Failure]:
        """What is left belongs to no cut."""
        while self._next is not None:
            name, offset, _ = self._next
            self._fault(offset, ValueError(f"{name!r} belongs to no cut, or not in this place"))
            self._next = next(self._pairs, None)
        return self.faults()

    def faults(self) -> list[Failure]:
        """What was wrong since this was asked last."""
        told, self._faults = self._faults, []
        return told

    def parts(self, found: Found) -> dict[str, Any]:
        """Columns of bytes and text."""
        if found.data is None:
            return {}
        described = self.name != "recording" and found.manifest is not None
        return {self._column: found.data} | ({f"{self.name}_manifest": found.manifest} if described else {})

    def values(self, found: Found) -> dict[str, Any]:
        """Columns of JSON."""
        return {} if self._in_archive or not self._wanted else {self.name: found.value}

    def _fault(self, offset: int, error: Exception) -> None:
        self._faults.append(fault(self.uri, offset, error))

    def _members(self) -> Iterator[tuple[str, int, Any]]:
        held: tuple[str, int, Any] | None = None  # its manifest may follow
        with open_input(self.uri, self._options) as file:
            reader = TarReader(file)
            for member in reader.members():
                if isinstance(member, Damage):
                    self._fault(member.offset, member.error)
                    continue
                if member.kind != "file":
                    continue
                name = member.name.removeprefix("./")
                key, dot, ending = name.rpartition(".")
                if ending in ("json", "nometa"):
                    if held is None or held[0] != key:
                        why = ValueError(f"{name!r} describes nothing that stands before it")
                        self._fault(member.offset, why)
                        continue
                    content = reader.content() if isinstance(held[2], Found) and ending == "json" else None
                    if content is not None:
                        held[2].manifest = content.decode("utf-8", "replace").strip()
                if held is not None:
                    yield held
                held = None
                if ending not in ("json", "nometa"):
                    found = self._content(member, ending if dot else "", reader)
                    held = (key if dot else name, member.offset, found)
            if held is not None:
                yield held

    def _content(self, member: Member, ending: str, reader: TarReader) -> Found | Exception:
        if ending == "nodata" or not self._wanted:
            return Found()
        if member.size > self._most_bytes:
            return too_large(member, self._most_bytes)
        data = reader.content()
        if data is None:
            return EOFError(f"{member.name} is not whole: the archive ends in it")
        extension = ending.lower()
        if extension == "original":
            extension = next((kind for magic, kind in _ORIGINAL.items() if data.startswith(magic)), "")
        return Found(data, None if extension == "bin" else extension)

    def _lines(self) -> Iterator[tuple[str, int, Any]]:
        damages: list[Failure] = []
        for offset, line in lines_of(self.uri, self._options, damages):
            try:
                value = json.loads(line)
                yield value["cut_id"], offset, Found(value=value.get(self.name))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                self._fault(offset, ValueError(f"not an object with a cut_id: {error}"))
        self._faults += damages


def too_large(member: Member, most_bytes: int) -> Exception:
    return ValueError(f"{member.name} has {member.size:,} bytes, more than max_record_bytes ({most_bytes:,})")


def fault(uri: str, offset: int, error: Exception, raw: bytes = b"") -> Failure:
    """What is wrong at a place of a file."""
    place = f"{uri}:byte={offset}"
    return Failure(place, offset, type(error)(f"{place}: {error}"), excerpt(raw))


def lines_of(uri: str, options: dict[str, Any] | None, faults: list[Failure]) -> Iterator[tuple[int, bytes]]:
    """The lines of a file that are not empty, each with the byte where it begins; damage ends them, and is a
    fault."""
    offset = 0
    with open_input(uri, options) as file:
        try:
            for line in file:
                if line.strip():
                    yield offset, line
                offset += len(line)
        except DamagedStream as error:
            faults.append(Failure(f"{uri}:byte={offset}", offset, error))
