"""WebDataset shards: tar archives in which neighbouring files of one name are a sample."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import unquote

from curator.api.batch import Batch
from curator.api.errors import InputError
from curator.api.stage import Outputs, SourceRange
from curator.io.files.faults import explained
from curator.io.files.folder import FileInfo, open_input
from curator.io.media.beside import Beside, of_shards
from curator.io.media.files import ARROW_BYTES
from curator.io.media.sample_table import Sample, SampleTable
from curator.io.media.tar import Damage, Member, TarReader
from curator.io.source import FileSource, failures
from curator.io.tables.columns import Seen, UnfitColumn
from curator.io.tables.json_types import wanted_lines
from curator.io.tables.jsonl import MIXED_FRACTION_MAX
from curator.io.tables.records import PIECE_BYTES, PIECE_ROWS, Failure, as_records, pieces

HEAD_SAMPLES, HEAD_BYTES = 100, 4 << 20  # looked at before a run, of each of some files
_META = re.compile(r"__[^/]*__(/|$)")  # WebDataset's own notes in an archive
_RESERVED = ("id", "source", "key", "bytes", "extension")
# of parts by the last word of their endings
_KINDS = {"txt": "text", "text": "text", "json": "text", "cls": "cls"}


@dataclass(kw_only=True)
class WebDataset(FileSource):
    """Read WebDataset shards (`.tar`, `.tar.gz`, `.tar.zst`), one record a sample.

    Neighbouring files whose paths are equal up to the first dot of the name are a sample: that path is its
    `key` (string), the rest, in lower case, is a part's ending. `.json`: each key of the object becomes a
    column, typed as in `jsonl`. `.txt` and `.text`: a string column named like the ending; `.cls`: an int64
    column. The first other part is `bytes` (binary), and its ending `extension` (string); further ones become
    binary columns named by their endings, dots as `_` (`seg.png`: `seg_png`). A part `<name>.bin` is the
    binary column `<name>`. `id`, `source`, `key` and `extension` are the json's where it has them; where
    another key of it is the name of a part too, its column is called `<name>_2`.

    A sample with a part that is broken (no JSON object, no UTF-8, an ending that comes twice, more than
    `max_record_bytes`) leaves on `failed` with its place, and so do places where the archive is damaged and
    the samples next to them, which may lack a part. Folders, files whose names begin with a dot, and
    WebDataset's own `__name__` are no samples. With `select`, parts that are not wanted are passed over. An
    archive is read as one unit, however big it is.

    `media`: the endings that may become `bytes` (`[jpg, png]`), None for whichever comes first. `metadata`:
    also read `name.parquet` beside `name.tar`, as the sink `webdataset` writes it, for columns that the shard
    does not have (its `metadata_only`); samples are found there by their `key`.
    """

    media: list[str] | None = None
    metadata: bool = False
    max_record_bytes: int = 256 << 20  # a larger sample fails

    name = "webdataset"
    suffixes: ClassVar[tuple[str, ...]] = (".tar", ".tar.gz", ".tar.zst")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.max_record_bytes <= ARROW_BYTES:
            raise ValueError(f"max_record_bytes must be from 1 to {ARROW_BYTES:,}, got "
                             f"{self.max_record_bytes}")
        if isinstance(self.media, str) or self.media == []:
            raise ValueError(f"media must be a list of endings such as jpg, got {self.media!r}")
        self._media = None if self.media is None else {ending.lower().lstrip(".") for ending in self.media}

    def read_part(self, part: SourceRange) -> Iterator[Batch | Outputs]:
        table = SampleTable(part.uri, of_shards(self.seen), self.max_record_bytes, self.wanted())
        beside = Beside(part.uri, self.storage_options) if self.metadata else None
        for gathered, damages in self._gathered(part.uri):
            made = table.make(gathered)
            rows = made.rows
            if beside is not None:
                keys = {sample.offset: sample.key for sample in gathered}
                rows = beside.filled(rows, [keys[at] for at in made.positions.tolist()], self.seen)
            yield from pieces(as_records(rows, part.uri, made.positions, self.id_column))
            bad = made.failures + [_damaged(part.uri, damage) for damage in damages]
            if bad:
                yield failures(part, sorted(bad, key=lambda failure: failure.offset or 0))

    def head(self, file: FileInfo) -> list[tuple[str, Seen]]:
        with explained("read", file.uri):
            gathered, damages = next(self._gathered(file.uri, HEAD_SAMPLES, HEAD_BYTES), ([], []))
        if damages and not gathered:
            error = damages[0].error
            raise InputError(f"{file.uri} is not a tar archive, or a damaged one: {error}") from error
        wanted_lines(file.uri, (s.json for s in gathered if s.json is not None), self.wanted())
        made = SampleTable(file.uri, {}, self.max_record_bytes, self.wanted()).make(gathered)
        if made.mixed > MIXED_FRACTION_MAX * len(gathered):
            first = next(f for f in made.failures if isinstance(f.error, TypeError))
            raise UnfitColumn(f"{first.error}. Convert one of them, or leave the column out with `select`")
        if made.failures and not len(made.positions):
            raise InputError(f"{file.uri}: none of its first {len(gathered)} samples can be read. "
                             f"{made.failures[0].error}")
        found = [(column.name, Seen(column.type, file.uri)) for column in made.rows.schema]
        if self.metadata:
            found += Beside(file.uri, self.storage_options).columns(made.rows.column_names)
        return found

    # -- from members to samples -----------------------------------------------------------------------------

    def _gathered(self, uri: str, most: int = PIECE_ROWS, most_bytes: int = PIECE_BYTES) -> Iterator[
            tuple[list[Sample], list[Damage]]]:
        """Samples, a few MB at a time, with the damages between them."""
        samples, damages, size = list[Sample](), list[Damage](), 0
        for found in self._samples(uri):
            if isinstance(found, Damage):
                damages.append(found)
                continue
            if samples and (len(samples) >= most or size + found.size > most_bytes):
                yield samples, damages
                samples, damages, size = [], [], 0
            samples.append(found)
            size += found.size
        if samples or damages:
            yield samples, damages

    def _samples(self, uri: str) -> Iterator[Sample | Damage]:
        with open_input(uri, self.storage_options) as file:
            reader, sample, doubtful = TarReader(file), None, False
            for found in reader.members():
                if isinstance(found, Damage):
                    if sample is not None:
                        if found.certain:
                            sample.fail(ValueError(f"{sample.key}: the archive is damaged behind it, so it "
                                                   "may lack a part"))
                        yield sample
                    sample, doubtful = None, found.certain
                    yield found
                    continue
                named = key_and_ending(found.name)
                if found.kind in ("folder", "label") or named is None:
                    continue
                if sample is None or sample.key != named[0]:
                    if sample is not None:
                        yield sample
                    sample = Sample(named[0], found.offset)
                    if doubtful:
                        sample.fail(ValueError(f"{sample.key}: the archive is damaged before it, so it may "
                                               "lack a part"))
                    doubtful = False
                self._add(sample, found, named[1], reader)
            if sample is not None:
                yield sample

    def _add(self, sample: Sample, member: Member, ending: str, reader: TarReader) -> None:
        """A member as a part of its sample."""
        if member.kind != "file":
            sample.fail(ValueError(f"{member.name} is a {member.kind}, not a file with content"))
        compared = ending if _is_binary_column(ending) else ending.lower()
        if compared in sample.endings:
            sample.fail(ValueError(f"{member.name}: the part {ending!r} comes twice in one sample"))
        sample.endings.add(compared)
        if sample.error is not None:
            return
        kind, column = self._slot(sample, ending)
        if kind == "media":
            sample.extension = ending.lower()
        wanted = self.wanted()
        if wanted is not None and kind != "json" and column not in wanted:
            return
        if sample.size + member.size > self.max_record_bytes:
            sample.fail(ValueError(f"the sample {sample.key} has more than max_record_bytes "
                                   f"({self.max_record_bytes:,})"))
            return
        content = reader.content()
        if content is None:  # the reader says where the archive ends
            sample.fail(EOFError(f"{member.name} is not whole: the archive ends in it"))
            return
        sample.size += len(content)
        try:
            if kind == "json":
                sample.json = _one_line(content)
            elif column in sample.parts:
                raise ValueError(f"another part of the sample makes the column {column!r} too")
            else:
                sample.parts[column] = _READERS[kind](content)
        except ValueError as error:
            sample.fail(ValueError(f"{member.name}: {error}"), content)

    def _slot(self, sample: Sample, ending: str) -> tuple[str, str]:
        """What becomes of a part, and in which column."""
        lowered = ending.lower()
        kind = _KINDS.get(lowered.rpartition(".")[2], "binary")
        column = lowered.replace(".", "_") or "no_ending"
        if lowered == "json":
            return "json", ""
        if _is_binary_column(ending):
            kind, column = "binary", unquote(ending[:-len(".bin")])
        elif kind == "binary" and sample.extension is None and (self._media is None
                                                                or lowered in self._media):
            return "media", "bytes"
        return kind, f"{column}_2" if column in _RESERVED else column


def _is_binary_column(ending: str) -> bool:
    return "." in ending and ending.endswith(".bin")


def key_and_ending(name: str) -> tuple[str, str] | None:
    """`("a/b/000", "seg.png")` for `./a/b/000.seg.png`; None for what is no part of a sample."""
    while name.startswith("./"):
        name = name[2:]
    folder, slash, base = name.rpartition("/")
    if base.startswith(".") or not base or _META.match(name):
        return None
    start, _, ending = base.partition(".")
    return folder + slash + start, ending


def _one_line(content: bytes) -> bytes:
    line = content.strip(b" \t\r\n")
    if not line:
        raise ValueError("not JSON: it is empty")
    return line.replace(b"\n", b" ").replace(b"\r", b" ")  # in JSON, both stand between values only


def _whole_number(content: bytes) -> int:
    value = int(content)
    if not -2**63 <= value < 2**63:
        raise ValueError(f"{value} is beyond 64 bits")
    return value


def _utf8(content: bytes) -> str:
    try:
        return str(content, "utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: byte {content[error.start]:#04x} at {error.start}") from None


_READERS: dict[str, Callable[[bytes], bytes | str | int]] = {"media": bytes, "binary": bytes, "text": _utf8,
                                                             "cls": _whole_number}


def _damaged(uri: str, damage: Damage) -> Failure:
    error = InputError(f"{uri}, byte {damage.offset:,}: {damage.error}")
    error.__cause__ = damage.error
    return Failure(f"{uri}:byte={damage.offset}", damage.offset, error)
