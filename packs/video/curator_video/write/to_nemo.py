"""The folders of NeMo Curator's video pipeline: clips, previews, a JSON of each clip, embeddings."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from curator.api.errors import RecipeError
from curator.api.stage import Contract
from curator.io.files.folder import Output
from curator.io.media.sink import MediaFiles, MediaSink, is_bytes
from curator.io.sink import Encoder, FileWriter
from curator.io.tables.parquet import ParquetFile
from curator.io.tables.plain import json_lines

EMBEDDING = pa.schema([("id", pa.string()), ("embedding", pa.list_(pa.float32()))])
SOURCE = {"source_video": "path", "width_source": "width", "height_source": "height", "framerate_source": "fps"}
SCORES = ("aesthetic_min", "aesthetic", "aesthetic_mean")  # the first that is there is the aesthetic score
_AT_ONCE = 8
_READ = ("id", "source", "start_s", "end_s", "clip_start", "clip_frames", "caption", "caption_enhanced", "captions", *SOURCE.values())


@dataclass(kw_only=True)
class ToNemo(MediaSink):
    """Write clips as NeMo Curator's video pipeline does: `clips/`, `previews/`, `metas/v0/`, `ce1_embd_parquet/`.

    A clip is named by a UUID that NeMo would give it: version 5, of the URL `<source video>_<start>_<end>`. There are
    `clips/<name>/<uuid>.mp4` (the column that `media` names), `previews/<name>/<uuid>/<first>_<end>.webp` (of the column
    `preview`), `metas/v0/<name>/<uuid>.json`, and of the column `embedding` `ce1_embd_parquet/<name>.parquet` with `id` and
    `embedding`, which semantic deduplication reads as it is. Beside the folders `<name>.parquet` has a row a clip with all
    other columns, and `span_uuid`. The name is one for all files of a unit of the source.

    Keys of the JSON: `span_uuid`, `source_video`, `duration_span` (seconds), `width_source`, `height_source`, `framerate_source`,
    `clip_location` (below `path`), `num_frames`, `num_bytes`, `aesthetic_score` (of `aesthetic_min`, `aesthetic` or
    `aesthetic_mean`), `windows` (of `captions`, each with `start_frame`, `end_frame` and `<model>_caption`; else one over the
    whole clip; `<model>_enhanced_caption` of `caption_enhanced` is in the first), `has_caption`, `valid` (there is a file). Under
    `columns` are the other columns but bytes and lists of numbers; with `select`, those that it names.

    `model`: what stands before `_caption`. `absolute`: `clip_location` is the full path, as NeMo has it.

    Known differences: a folder of a unit stands between NeMo's folder and its files, so that a run that is killed or edited can tell
    which are its own: read `metas/v0/**/*.json`. There are no `filtered_clips/` (the run has `dropped/`), no pickles, no
    `processed_videos/` and `processed_clip_chunks/` (the run's ledger and report have what they say). There is no `motion_score`:
    NeMo's is of vectors of the codec, in another unit than `motion_mean`, which is under `columns`.

    Source: NVIDIA-NeMo/Curator, nemo_curator/stages/video/io/clip_writer.py
    """

    model: str = "vlm"
    absolute: bool = False

    name = "to_nemo"
    ending: ClassVar[str] = ".parquet"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.model:
            raise ValueError("model is what stands before _caption, such as qwen; it is empty")

    def contract(self) -> Contract:
        return Contract(needs=dict.fromkeys([self.media, "start_s", "end_s", *(self.select or ())]))

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        super().check(columns)
        kind = columns.get("embedding")
        if kind is not None and not _is_vector(kind):
            raise RecipeError(f"embedding is {kind} and is to be a list of numbers, as video.embed gives it")

    def unasked(self) -> tuple[str, ...]:
        return (*super().unasked(), *_READ, *SCORES, "preview", "embedding")

    def begin(self, files: FileWriter, stem: str, schema: pa.Schema) -> Encoder:
        described = files.add(self.output(files.folder, stem + self.suffix()))
        vectors = None
        if "embedding" in schema.names and _is_vector(schema.field("embedding").type):
            vectors = ParquetFile(files.add(files.folder.open_file(f"ce1_embd_parquet/{stem}.parquet", "wb")), EMBEDDING, "zstd")
        return _Clips(self, files, stem, described, vectors)


class _Clips(MediaFiles):
    def __init__(self, sink: ToNemo, files: FileWriter, stem: str, described: Output, vectors: ParquetFile | None) -> None:
        super().__init__(described)
        self._sink, self._files, self._stem, self._vectors = sink, files, stem, vectors

    def put(self, rows: pa.Table) -> pa.Table:
        records = rows.select([name for name in dict.fromkeys((*_READ, *SCORES)) if name in rows.column_names]).to_pylist()
        names = [self.names.unique(span_uuid(one)) for one in records]
        contents = rows.column(self._sink.media).to_pylist()
        previews = rows.column("preview").to_pylist() if "preview" in rows.column_names else [None] * len(rows)
        jobs: list[tuple[str, bytes]] = []
        for name, record, more, content, preview in zip(names, records, self._others(rows), contents, previews, strict=True):
            place = f"clips/{self._stem}/{name}.mp4"
            windows = self._windows(record)
            if content is not None:
                jobs.append((place, content))
            if isinstance(preview, bytes):
                span = f"{windows[0]['start_frame']}_{windows[0]['end_frame']}"
                jobs.append((f"previews/{self._stem}/{name}/{span}.webp", preview))
            jobs.append((f"metas/v0/{self._stem}/{name}.json", self._meta(name, place, record, content, windows, more)))
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(self._put, *zip(*jobs, strict=True)))
        if self._vectors is not None:
            vectors = rows.column("embedding").cast(EMBEDDING.field("embedding").type)
            there = pa.table([pa.array(names, pa.string()), vectors], EMBEDDING)
            self._vectors.write(there.filter(vectors.is_valid()))
        apart = [name for name in (self._sink.media, "preview", "embedding", "span_uuid") if name in rows.column_names]
        return rows.drop_columns(apart).append_column("span_uuid", pa.array(names, pa.string()))

    def finish(self) -> None:
        super().finish()
        if self._vectors is not None:
            self._vectors.finish()

    def abandon(self) -> None:
        super().abandon()
        if self._vectors is not None:
            self._vectors.abandon()

    def _put(self, name: str, content: bytes) -> None:
        with self._files.add(self._files.folder.open_file(name, "wb")) as output:
            output.write(content)

    def _others(self, rows: pa.Table) -> list[bytes]:
        """What NeMo has no key for, as JSON objects."""
        known = {self._sink.media, "captions", *SOURCE.values()} - set(self._sink.select or ())
        wanted = set(self._sink.select or rows.column_names) - known
        kept = [one.name for one in rows.schema if one.name in wanted and not is_bytes(one.type)
                and (self._sink.select is not None or not _is_vector(one.type))]
        return json_lines(rows.select(kept)).split(b"\n")[:len(rows)] if kept else [b"{}"] * len(rows)

    def _meta(self, name: str, place: str, record: dict[str, Any], content: bytes | None, windows: list[dict[str, Any]],
              more: bytes) -> bytes:
        location = self._files.folder.path_of(place) if self._sink.absolute else place
        score = next((record[one] for one in SCORES if record.get(one) is not None), None)
        made = {"span_uuid": name, **{key: record.get(column) for key, column in SOURCE.items()},
                "duration_span": [record["start_s"], record["end_s"]], "clip_location": location,
                "num_frames": record.get("clip_frames"), "num_bytes": None if content is None else len(content),
                **({} if score is None else {"aesthetic_score": score}), "windows": windows,
                "has_caption": any(f"{self._sink.model}_caption" in one for one in windows), "valid": content is not None}
        made["source_video"] = source_of(record)
        import msgspec

        return msgspec.json.format(msgspec.json.encode(made)[:-1] + b',"columns":' + more + b"}", indent=2)

    def _windows(self, record: dict[str, Any]) -> list[dict[str, Any]]:
        """In pictures of the clip, as NeMo counts them."""
        begin = record["start_s"] if record.get("clip_start") is None else record["clip_start"]
        rate, count = record.get("fps") or 0.0, record.get("clip_frames")
        if count is None:
            count = round(((record["end_s"] or 0.0) - (record["start_s"] or 0.0)) * rate)
        caption = f"{self._sink.model}_caption"
        made = [{"start_frame": round((one["start"] - begin) * rate), "end_frame": min(count, round((one["end"] - begin) * rate)),
                 **({} if one["text"] is None else {caption: one["text"]})} for one in record.get("captions") or ()]
        made = made or [{"start_frame": 0, "end_frame": count, **({caption: record["caption"]} if record.get("caption") else {})}]
        if record.get("caption_enhanced"):
            made[0][f"{self._sink.model}_enhanced_caption"] = record["caption_enhanced"]
        return made


def source_of(record: dict[str, Any]) -> str:
    return str(record.get("path") or record["source"])


def span_uuid(record: dict[str, Any]) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{source_of(record)}_{record['start_s']}_{record['end_s']}"))


def _is_vector(kind: pa.DataType) -> bool:
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return lists and (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type) or is_bytes(kind.value_type))
