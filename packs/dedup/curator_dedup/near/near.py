"""Of records that are nearly alike, keep one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa

from curator.api.errors import RecipeError
from curator.api.stage import Composite, Contract, setting
from curator.io.tables.parquet import ToParquet
from curator_dedup.near.index import IndexPlace, IndexRows, ToIndex, made_by
from curator_dedup.near.measures import Hamming, Measure, MinHash
from curator_dedup.near.pairs import FindPairs
from curator_dedup.near.shares import SharedHashes
from curator_dedup.near.sketch import Sketch
from curator_dedup.near.stream import NearStream
from curator_dedup.shared.clusters import Clusters
from curator_dedup.shared.keep import Keep
from curator_dedup.shared.options import ALARM_ABOVE, check_clustering, check_stream
from curator_dedup.shared.split import Split


@dataclass(kw_only=True)
class DedupNear(Composite):
    """Let one of records that are nearly alike through; the others go to `duplicate`, naming it in
    `duplicate_of`.

    `column`: MinHash signatures (as `text.minhash` makes them), compared by the Jaccard similarity that they
    estimate; with `distance` bit hashes (of images, of audio). `threshold`: the least similarity of
    signatures; not asked with `distance`. `distance`: the most bits in which bit hashes differ. `hashes`:
    where `column` has lists of bit hashes (of a picture and its mirror images, of the frames of a video), the
    most that a record has; records are as alike as the nearest two of their hashes. `share`: then that is not
    enough: of the shorter list such a share of the hashes (each once) must agree, in at most `within` bits,
    with one of the other list, and at least two, if both have two; `similarity` is this share. `within`: by
    default `distance`, at which two of their hashes must be in any case. `mode`: `cluster` is a barrier:
    everything before it is done first, and who stays does not depend on order or workers. `stream` decides as
    records flow by, in the memory of one worker: of those that are alike the first to arrive stays. `keep`:
    which one stays: `first` (by id), `longest`, `{by: quality, order: desc}`, `{newest: date}`, `{sources:
    [good/*]}`, `none`, or a list of these. `scope`: a column; records are compared with those that have the
    same value there. `reference`: a condition in SQL; records for which it is true are never removed, and
    come first. `radius`: 1, so that each duplicate is itself similar to the record that stays; null for whole
    chains of look-alikes. `verify`: `signature`, or `exact` to compute the Jaccard similarity of each
    candidate from the column `shingles`. `bands`, `rows`: of the search for candidates; by default those that
    find 99 % of the pairs at the threshold. `index`: a folder that keeps what stays, for later runs, with
    outputs of their own, to compare their records with. `copies`: a column to add, int32: how many records
    were alike in all, for upsampling by `repeat`; 1 where one was alone. `alarm_above`: the shares above which one `cluster`,
    or what one `source` loses, raises an alarm.

    Beside `duplicate_of` a duplicate has `similarity` and `cluster`; all clusters are in `clusters/<stage>/`
    of the output. Source: Broder 1997 (MinHash); Indyk and Motwani 1998 (bands of hashes); vPDQ (a share of
    hashes).
    """

    column: str = "minhash"
    mode: Literal["cluster", "stream"] = "cluster"
    threshold: float = 0.8
    distance: int | None = None
    hashes: int = 1
    share: float | None = None
    within: int | None = None
    keep: Any = "first"
    scope: str | None = None
    reference: str | None = None
    radius: int | None = 1
    verify: Literal["signature", "exact"] = "signature"
    shingles: str = "shingles"
    bands: int | None = None
    rows: int | None = None
    index: str | None = None
    copies: str | None = None
    shards: int = setting(default=16)
    alarm_above: Mapping[str, float] = setting(default_factory=lambda: dict(ALARM_ABOVE))

    name = "dedup.near"

    def __post_init__(self) -> None:
        if self.verify not in ("signature", "exact"):
            raise RecipeError(f"dedup.near: verify must be signature or exact, got {self.verify!r}")
        if self.index is not None and self.verify == "exact":
            raise RecipeError("dedup.near: an index keeps signatures, not shingles; leave out verify or "
                              "index")
        if self.distance is not None:
            self._check_usual("bit hashes are compared by distance", threshold=0.8, bands=None, rows=None,
                              verify="signature")
        if self.verify == "signature":
            self._check_usual("only verify: exact reads shingles", shingles="shingles")
        if self.distance is None and self.hashes != 1:
            raise RecipeError("dedup.near: hashes is for bit hashes, which are compared by distance: set "
                              "distance, or leave out "
                              "hashes")
        if self.share is not None and (self.distance is None or self.hashes == 1):
            raise RecipeError("dedup.near: share is of lists of bit hashes: set distance, and hashes to the "
                              "most that a record has, or "
                              "leave out share")
        if self.within is not None and self.share is None:
            raise RecipeError("dedup.near: within says which hashes agree: set share, how many of them must, "
                              "or leave out within")
        if self.mode not in ("cluster", "stream"):
            raise RecipeError(f"dedup.near: mode must be cluster or stream, got {self.mode!r}")
        if self.mode == "stream":
            check_stream(self, keep="first", reference=None, radius=1, verify="signature", index=None,
                         copies=None)
        check_clustering("dedup.near", self.radius, self.shards, self.alarm_above)
        self._keep = Keep.parse(self.keep)
        self._measure = self._measured()

    def _check_usual(self, why: str, **usual: Any) -> None:
        """Refuse what would say nothing here."""
        for name, value in usual.items():
            if getattr(self, name) != value:
                raise RecipeError(f"dedup.near: {name} does not apply, as {why}; leave out {name}")

    def _measured(self) -> Measure:
        if self.distance is not None and self.share is not None:
            return SharedHashes(column=self.column, distance=self.distance, hashes=self.hashes,
                                share=self.share,
                                within=self.distance if self.within is None else self.within)
        if self.distance is not None:
            return Hamming(column=self.column, distance=self.distance, hashes=self.hashes)
        return MinHash(column=self.column, threshold=self.threshold, bands=self.bands, rows=self.rows)

    def contract(self) -> Contract:
        return Contract(needs=self._sketch().contract().needs,
                        adds={self.copies: pa.int32()} if self.copies else {})

    def _sketch(self) -> Sketch:
        return Sketch(measure=self._measure, keep=self._keep, scope=self.scope, reference=self.reference,
                      shards=self.shards,
                      shingles=self.shingles if self.verify == "exact" else None)

    def expand(self, rows: Any, folder: str, storage_options: dict[str, Any] | None) -> Any:
        if self.mode == "stream":
            return rows >> NearStream(measure=self._measure, scope=self.scope)
        place = None if self.index is None else IndexPlace(self.index, folder, storage_options)
        edges = rows >> self._sketch() >> FindPairs(measure=self._measure, exact=self.verify == "exact",
                                                    index=place,
                                                    scope=self.scope, shards=self.shards)
        verdicts = edges >> Clusters(radius=self.radius, drops_all=self._keep.drops_all)
        verdicts = verdicts.to(ToParquet(path=folder, storage_options=storage_options))
        survivors = (rows + verdicts) >> Split(measure=self._measure, copies=self.copies,
                                               shards=self.shards, alarm_above=self.alarm_above)
        if place is None:
            return survivors
        indexed = survivors >> IndexRows(measure=self._measure, scope=self.scope) >> ToIndex(
            path=f"{str(self.index).rstrip('/')}/{place.own}", place=place,
            made_by=made_by(self._measure, self.scope),
            storage_options=storage_options)
        return replace(survivors, sinks=indexed.sinks)
