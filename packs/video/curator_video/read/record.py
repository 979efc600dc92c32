"""What a record is: a film, a span of one, or a clip that was cut; and opening its file once for many."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from curator.api.batch import Batch
from curator.api.errors import ContractError

if TYPE_CHECKING:
    from curator_video.read.film import Film

_READS = ("path", "start_s", "end_s", "cut_method", "clip_start", "comb_ratio")
SIZE = 384  # pixels of the longer side of the pictures that measures and models are given
COMBED = 0.007  # of the pixels: five real films that are not woven have up to 0.003, the same woven 0.013 to 0.22


@dataclass(frozen=True)
class Part:
    """Where the pictures of a record lie: `begin` to `end` (None: to its end) in the file at `path`, or in `data`.

    `shift`: what is added to a time in the file for one in the source. `combed`: its pictures are two fields woven together, as
    video.shots or video.decode has found. `wrong`: why there is none, else "".
    """

    row: int
    path: str | None
    data: bytes | None
    begin: float = 0.0
    end: float | None = None
    shift: float = 0.0
    combed: bool = False
    wrong: str = ""


def parts_of(batch: Batch, *, by_film: bool = False) -> Iterator[Part]:
    """The part of each record, in order; `by_film`: those of one path one after the other, as they lie in it.

    With `bytes`, those are the file, else `path` is. `start_s` and `end_s` are a span of it; but where `video.cut` has made the
    bytes (`cut_method` is there) they are one of its source, in which the bytes begin at `clip_start`, else at `start_s`.
    """
    missing = [None] * len(batch)
    given = [batch.column(name) if name in batch.columns else missing for name in _READS]
    files = batch.rows.column("bytes") if "bytes" in batch.columns else missing
    paths, starts, *_ = given
    rows = sorted(range(len(batch)), key=lambda row: (paths[row] or "", starts[row] or 0.0)) if by_film else range(len(batch))
    for row in rows:
        path, start, end, method, clip_start, comb = (values[row] for values in given)
        found = files[row]
        data = None if found is None else found.as_py()
        combed = comb is not None and comb > COMBED and method != "deinterlaced"
        if data is None and not path:
            yield Part(row, None, None, wrong="no_file: the record has neither `bytes` nor a `path`")
        else:
            begin = 0.0 if start is None or math.isnan(start) else float(start)
            stop = None if end is None or math.isnan(end) else float(end)
            shift = 0.0 if data is None or method is None else begin if clip_start is None else float(clip_start)
            wrong = "" if stop is None or stop > begin else f"no_span: it ends at {stop:g} s and begins at {begin:g} s"
            yield Part(row, path if data is None else None, data, max(0.0, begin - shift), None if stop is None else stop - shift, shift,
                       combed, wrong)


def check_file(columns: Mapping[str, pa.DataType | None]) -> None:
    """Raises:
        ContractError: there is neither `bytes` nor `path`, or bytes that are none, or a span that is no numbers.
    """
    if columns.keys().isdisjoint(("bytes", "path")):
        raise ContractError("needs `path` (where the film lies) or `bytes` (the file); readers such as video.files and webdataset "
                            "give them")
    kind = columns.get("bytes")
    if kind is not None and not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_null(kind)):
        raise ContractError(f"`bytes` is to be binary, the encoded file, and here it is {kind}")
    for name in ("start_s", "end_s"):
        kind = columns.get(name)
        if kind is not None and not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
            raise ContractError(f"`{name}` is to be seconds, a number, and here it is {kind}; video.manifest reads texts as seconds")


class Films:
    """Opens films of parts; one that several parts in a row lie in is opened once. `with` closes it."""

    def __init__(self, storage_options: dict[str, Any] | None = None, **options: Any) -> None:
        self._storage_options, self._options = storage_options, options
        self._film: Film | None = None
        self._path: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._close()

    def open(self, part: Part) -> Film:
        """The film of a part, open until the next is asked for.

        Raises:
            BadFilm: it is none.
        """
        from curator_video.read.film import BadFilm, Film

        if part.wrong:
            raise BadFilm(part.wrong)
        if self._film is not None and part.data is None and part.path == self._path:
            return self._film
        self._close()
        source = part.path if part.data is None else part.data
        assert source is not None, "a part without a file says that it is wrong"
        self._film = Film(source, self._storage_options, **self._options)
        self._path = part.path if part.data is None else None
        return self._film

    def _close(self) -> None:
        film, self._film = self._film, None
        if film is not None:
            film.close()
