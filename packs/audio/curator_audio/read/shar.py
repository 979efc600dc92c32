"""lhotse shar: shards of cuts, recordings and other fields, zipped by their ids."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

from curator.api.errors import InputError
from curator.io.files.folder import FileInfo
from curator.io.media.sample_table import Sample
from curator.io.tables.records import Failure
from curator_audio.read.shards import MISSING, Field, Gathered, Places, ShardSource, lines_of

_CUTS = (None, "MonoCut", "MultiCut")
_GIVEN = ("source", "extension", "key")  # custom fields that say what else would be made up


@dataclass(kw_only=True)
class Shar(ShardSource):
    """Read lhotse shar (`cuts.*.jsonl.gz`, `recording.*.tar`, other fields), one record a cut; or cuts
    without archives.

    Columns: `id`, `bytes` (binary: the file of the recording as it is; null where the archive has `.nodata`),
    `extension`, `duration` (seconds), `sample_rate` (Hz), `channels`; of the supervisions `text` (joined by a
    space in order of time), `speaker`, `language`, `gender` (null where they differ), `words` (list of word,
    start, end, score, from the alignment) and, of several with speakers, `turns` (list of start, end,
    speaker); all custom fields; and of other files of the shard a column each: the values of
    `<field>.*.jsonl.gz`, the bytes of `<field>.*.tar` with `<field>_manifest` (their description, JSON text).
    A custom field that is named like one of these is `custom_<name>`. Cuts whose recording is a file or URL
    of its own have `path`, and `offset` in it.

    Archives are compared with the cuts by id: a cut that is missing in one, or is no cut of one recording
    (MixedCut), and what in an archive belongs to no cut leave on `failed`, and the others come through. Index
    files (`.idx`) are not needed.

    `path`: folders, globs or files; of a folder all shards in it and below.
    `supervisions`: `columns` as above, or `list`, which gives one column instead, a list of id, start, duration,
    text, speaker, language and gender.
    `max_record_bytes`: a cut with more fails.
    `unit_bytes`: changes nothing, as a shard is read as one.

    Source: lhotse 1.33, shar/readers/lazy.py, shar/writers
    """

    supervisions: Literal["columns", "list"] = "columns"

    name = "shar"
    suffixes: ClassVar[tuple[str, ...]] = (".jsonl.gz", ".jsonl", ".tar", ".tar.gz")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.supervisions not in ("columns", "list"):
            raise ValueError(f"supervisions is columns or list, got {self.supervisions!r}")

    def grouped(self, files: Sequence[FileInfo]) -> list[tuple[FileInfo, ...]]:
        shards: dict[tuple[str, str], dict[str, FileInfo]] = {}
        for file in files:
            folder, _, name = file.uri.rpartition("/")
            field, _, rest = name.partition(".")
            number = rest.removesuffix(".gz").removesuffix("jsonl").removesuffix("tar")
            shards.setdefault((folder, number), {})[field] = file
        fields = set().union(*shards.values())
        if "cuts" not in fields:
            raise InputError(f"no file is called cuts.000000.jsonl.gz or the like in {self.path}")
        for (folder, number), found in shards.items():
            if missing := sorted(fields - found.keys()):
                beside = next(iter(found.values())).uri
                raise InputError(f"{folder} has no {missing[0]}.{number}… beside {beside}, and other shards have one: "
                                 "fetch it, or name the files to read")
        order = sorted(fields, key=lambda name: (name != "cuts", name != "recording", name))
        return [tuple(found[field] for field in order) for found in shards.values()]

    def gather(self, uris: Sequence[str]) -> Iterator[Gathered]:
        found, damages = Gathered(), list[Failure]()
        places = Places(partial(_ids, uris[0], self.storage_options))
        fields = [Field(uri, places, self.storage_options, self.wanted(), self.max_record_bytes)
                  for uri in uris[1:]]
        for position, (offset, line) in enumerate(lines_of(uris[0], self.storage_options, damages)):
            sample = self._sample(position, offset, _parsed(line), fields)
            if found.is_full(sample.size):
                yield found
                found = Gathered()
            found.add(sample)
            for field in fields:
                found.faults += field.faults()
        for field in fields:
            found.faults += field.finish()
        found.faults += damages
        yield found

    def _sample(self, position: int, offset: int, cut: Any, fields: Sequence[Field]) -> Sample:
        if not is_cut(cut):
            sample = Sample("", offset)
            kind = cut.get("type") or "no cut" if isinstance(cut, dict) else cut
            sample.fail(ValueError(f"not a cut of one recording (MonoCut, MultiCut): {kind}"))
            return sample
        sample, values = Sample(cut["id"], offset), dict[str, Any]()
        for field in fields:
            found = field.of(position, sample.key)
            if found is MISSING:
                sample.fail(ValueError(f"the cut {sample.key!r} is not in {field.uri}"))
            elif isinstance(found, Exception):
                sample.fail(found)
            else:
                parts = field.parts(found)
                sample.size += sum(map(len, parts.values()))
                sample.parts |= parts
                values |= field.values(found)
                sample.extension = sample.extension or (found.extension if field.name == "recording" else None)
        if sample.error is None:
            try:
                made = flat(cut, [field.name for field in fields], self.supervisions)
                sample.json = json.dumps(made | values, ensure_ascii=False).encode()
            except (TypeError, KeyError, AttributeError, ValueError) as error:
                why = f"the cut {sample.key!r} is not as lhotse writes it: {type(error).__name__}: {error}"
                sample.fail(ValueError(why))
        return sample


def _parsed(line: bytes) -> Any:
    """The object of a line, or what is wrong with it."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"not JSON, {error}"


def _ids(uri: str, options: dict[str, Any] | None) -> Iterator[str | None]:
    """The id of each cut, None for a line that has none."""
    for _, line in lines_of(uri, options, []):
        cut = _parsed(line)
        yield cut["id"] if is_cut(cut) else None


def is_cut(cut: Any) -> bool:
    """Whether it is a cut of one recording."""
    return isinstance(cut, dict) and isinstance(cut.get("id"), str) and cut.get("type") in _CUTS \
        and "tracks" not in cut


def flat(cut: Mapping[str, Any], fields: Collection[str], supervisions: str) -> dict[str, Any]:
    """The cut as a record. `fields`: what stands in files of its own. `supervisions`: `columns` or `list`."""
    recording, start, channel = cut.get("recording") or {}, cut.get("start") or 0, cut.get("channel", 0)
    channels = recording.get("channel_ids") or (channel if isinstance(channel, list) else [channel])
    made = {"id": cut["id"], "duration": cut.get("duration"), "sample_rate": recording.get("sampling_rate"),
            "channels": len(channels)}
    if "recording" not in fields:
        sources = recording.get("sources") or []
        if len(sources) == 1 and sources[0].get("type") in ("file", "url"):
            made |= {"path": sources[0]["source"], "offset": float(start)}
    elif start:
        made["offset"] = float(start)
    said = sorted(cut.get("supervisions") or [], key=lambda one: one["start"])
    made |= {"supervisions": [_listed(one) for one in said]} if supervisions == "list" else _columns(said)
    custom = (said[0].get("custom") or {}) if len(said) == 1 else {}
    for name, value in (custom | (cut.get("custom") or {})).items():
        if name in fields:
            continue
        if name in _GIVEN or (name == "id" and isinstance(value, str)):
            made[name] = value
        else:
            made[f"custom_{name}" if name in made or name == "bytes" else name] = value
    return made


def _columns(said: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What supervisions say, in order of time, as columns; those without a value are left out."""
    made: dict[str, Any] = {}
    for name in ("text", "speaker", "language", "gender"):
        values = [value for one in said if (value := one.get(name)) is not None]
        if name == "text" and values:
            made[name] = " ".join(values)
        elif values and (len(said) == 1 or (len(values) == len(said) and len(set(values)) == 1)):
            made[name] = values[0]
    aligned = [one["alignment"]["word"] for one in said if "word" in (one.get("alignment") or {})]
    if aligned:
        made["words"] = [_word(*item) for items in aligned for item in items]
    if len(said) > 1 and all(one.get("speaker") for one in said):
        made["turns"] = [{"start": float(one["start"]), "end": _sum(one["start"], one["duration"]),
                          "speaker": one["speaker"]} for one in said]
    return made


def _word(symbol: str, start: float | None, seconds: float | None, score: float | None = None) -> dict[str, Any]:
    end = None if start is None or seconds is None else _sum(start, seconds)
    return {"word": symbol, "start": start, "end": end, "score": score}


def _listed(one: Mapping[str, Any]) -> dict[str, Any]:
    return {name: one.get(name) for name in ("id", "start", "duration", "text", "speaker", "language", "gender")}


def _sum(start: float, seconds: float) -> float:
    return round(float(start + seconds), 8)  # as lhotse has it
