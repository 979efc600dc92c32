"""Tarred sets of NeMo: archives of recordings, and a manifest for each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from curator.api.errors import InputError
from curator.io.files.folder import FileInfo, open_input
from curator.io.media.sample_table import Sample
from curator.io.media.tar import Damage, Member, TarReader
from curator.io.media.types import extension_of
from curator_audio.read.shards import Gathered, ShardSource, fault, lines_of, too_large

# As NeMo finds the number of a shard in the names of its files.
_MANIFEST = re.compile(r"manifest[^/]*_(\d+)[^/]*\.jsonl?(\.gz)?$")
_ARCHIVE = re.compile(r"audio[^/]*_(\d+)[^/]*\.tar(\.gz)?$")
_SUB = re.compile(r"(?P<stem>.+)-sub\d+(?P<ending>\.\w+)?")


@dataclass(kw_only=True)
class Tarred(ShardSource):
    """Read tarred sets of NeMo: `audio_0.tar` with `sharded_manifests/manifest_0.json`, one record a line of
    the manifest.

    Columns: `bytes` (binary: the member of the archive that `audio_filepath` names), `extension`, and the
    keys of the line: `audio_filepath`, `duration`, `offset`, `text`, … Lines with `-sub1`, `-sub2`, … before
    the ending are parts of one member, each a record with its bytes; `audio.decode` reads the part that
    `offset` and `duration` say.

    A line whose recording is not in the archive leaves on `failed`, and so do broken lines and places where
    the archive is damaged. A member that no line names is on `dropped`, reason `not_in_manifest`, by its name
    alone; a line with `_skipme` too, reason `skipme`.

    Files belong together by the last number in their names, within a folder (`sharded_manifests` counts as
    the one above). A manifest for all archives together (`tarred_audio_manifest.json`) is not read.

    `path`: the folder with both, or globs or files that name both.
    `max_record_bytes`: a recording with more fails.
    `unit_bytes`: changes nothing, as a shard is read as one.

    Source: NeMo, collections/common/data/lhotse/nemo_adapters.py
    """

    name = "tarred"
    suffixes: ClassVar[tuple[str, ...]] = (".json", ".jsonl", ".json.gz", ".jsonl.gz", ".tar", ".tar.gz")

    def grouped(self, files: Sequence[FileInfo]) -> list[tuple[FileInfo, ...]]:
        manifests = _numbered(files, _MANIFEST)
        archives = _numbered(files, _ARCHIVE)
        if not manifests or not archives:
            lacking = "archives named audio_0.tar" if manifests else "manifests named manifest_0.json"
            raise InputError(f"{self.path} has no {lacking} or the like; NeMo's convert_to_tarred_audio_dataset.py makes "
                             "both (with --shard_manifests)")
        for found, others, what in ((archives, manifests, "manifest"), (manifests, archives, "archive")):
            for key, file in found.items():
                if key not in others:
                    raise InputError(f"{file.uri} has no {what} with the number {key[1]}: fetch it, or name the files "
                                     "to read")
        return [(manifest, archives[key]) for key, manifest in manifests.items()]

    def gather(self, uris: Sequence[str]) -> Iterator[Gathered]:
        found, lines = Gathered(), _Lines()
        for offset, line in lines_of(uris[0], self.storage_options, found.faults):
            try:
                entry = json.loads(line)
                lines.add(entry["audio_filepath"], Entry(offset, entry, line.strip()))
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                why = ValueError(f"not an object with an audio_filepath: {error}")
                found.faults.append(fault(uris[0], offset, why, line))
        with open_input(uris[1], self.storage_options) as file:
            reader = TarReader(file)
            for member in reader.members():
                if isinstance(member, Damage):
                    found.faults.append(fault(uris[1], member.offset, member.error))
                elif member.kind == "file":
                    for sample, reason in self._samples(uris[1], member, lines.of(member.name), reader):
                        if reason is not None:
                            found.dropped.setdefault(reason, []).append(sample)
                            continue
                        if found.is_full(sample.size):
                            yield found
                            found = Gathered()
                        found.add(sample)
        for entry in lines.left():
            if entry.skipped:
                found.dropped.setdefault("skipme", []).append(entry.sample())
            else:
                why = ValueError(f"{entry.values['audio_filepath']!r} is not in {uris[1]}")
                found.faults.append(fault(uris[0], entry.offset, why, entry.line))
        yield found

    def _samples(self, uri: str, member: Member, entries: Sequence[Entry],
                 reader: TarReader) -> Iterator[tuple[Sample, str | None]]:
        """What becomes of a member: a record for each of its lines, each with the reason if it is dropped."""
        if not entries:
            about = json.dumps({"id": f"{uri}:byte={member.offset}", "audio_filepath": member.name}).encode()
            yield Sample(member.name, -1 - member.offset, json=about), "not_in_manifest"
            return
        wanted = self.wanted()
        error: Exception | None = None
        content: bytes | None = b""
        if member.size > self.max_record_bytes:
            error = too_large(member, self.max_record_bytes)
        elif wanted is None or "bytes" in wanted:
            content = reader.content()
            if content is None:
                error = EOFError(f"{member.name} is not whole: the archive ends in it")
        for entry in entries:
            sample = entry.sample()
            if error is not None:
                sample.fail(error)
            elif not entry.skipped:
                sample.parts, sample.size = {"bytes": content}, len(content or b"")
                sample.extension = extension_of(member.name) or None
            yield sample, "skipme" if entry.skipped else None


@dataclass
class Entry:
    """A line of a manifest."""

    offset: int
    values: dict[str, Any]
    line: bytes
    is_found: bool = False

    @property
    def skipped(self) -> bool:
        return bool(self.values.get("_skipme"))

    def sample(self) -> Sample:
        line = self.line
        if "_skipme" in self.values:
            line = json.dumps({name: value for name, value in self.values.items() if name != "_skipme"}).encode()
        return Sample(self.values["audio_filepath"], self.offset, json=line)


@dataclass
class _Lines:
    """The lines of a manifest by the member that each belongs to."""

    entries: list[Entry] = field(default_factory=list)
    exact: dict[str, list[Entry]] = field(default_factory=dict)
    parts: dict[str, list[Entry]] = field(default_factory=dict)  # by the name without -sub1

    def add(self, name: str, entry: Entry) -> None:
        self.entries.append(entry)
        self.exact.setdefault(name, []).append(entry)
        if sub := _SUB.fullmatch(name):
            self.parts.setdefault(sub["stem"] + (sub["ending"] or ""), []).append(entry)

    def of(self, name: str) -> list[Entry]:
        """The lines of a member that none before it has taken."""
        name = name.removeprefix("./")
        named = [*self.exact.get(name, ()), *self.parts.get(name, ())]
        found = [entry for entry in named if not entry.is_found]
        for entry in found:
            entry.is_found = True
        return found

    def left(self) -> Iterator[Entry]:
        return (entry for entry in self.entries if not entry.is_found)


def _numbered(files: Sequence[FileInfo], pattern: re.Pattern) -> dict[tuple[str, int], FileInfo]:
    """Files by folder and number."""
    found: dict[tuple[str, int], FileInfo] = {}
    for file in files:
        folder, _, name = file.uri.rpartition("/")
        if (match := pattern.search(name)) is None:
            continue
        key = folder.removesuffix("/sharded_manifests"), int(match[1])
        if key in found:
            raise InputError(f"{found[key].uri} and {file.uri} both have the number {key[1]}: name the files to "
                             "read")
        found[key] = file
    return found
