"""Records whose embeddings point the same way: keep one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from curator.api.errors import RecipeError
from curator.api.stage import Composite, Contract, setting
from curator.io.tables.parquet import ToParquet
from curator_dedup.near.cosine import Cosine
from curator_dedup.near.pairs import FindPairs
from curator_dedup.near.sketch import Sketch
from curator_dedup.near.stream import NearStream
from curator_dedup.semantic.centroids import Centroids
from curator_dedup.shared.clusters import Clusters
from curator_dedup.shared.keep import Keep
from curator_dedup.shared.options import ALARM_ABOVE, check_clustering, check_stream
from curator_dedup.shared.split import Split

BY_CENTER = ("hard", "easy", "random")
THRESHOLD = 0.95
SHARDS = {"kmeans": 16, "neighbours": 4}


@dataclass(kw_only=True)
class DedupSemantic(Composite):
    """Of records whose embeddings have a cosine of at least `threshold` one is kept; the others go to
    `duplicate`.

    `column`: the embeddings, lists of numbers of one width; a record without one, or with one that is 0,
    equals no other. `threshold`: 0.95 by default; or `eps`, which is 1 - threshold (0.05; SemDeDup and NeMo
    Curator say it so). A duplicate has this cosine to the record in `duplicate_of`; with `radius: 2` it may
    be two such steps away, with null any number.

    `mode`: `cluster` is a barrier, and who stays does not depend on order or workers. `stream` decides as
    records flow by, in the memory of one worker (2 bytes a component and 24 a key for each that stays): the
    first to arrive stays.

    `method`: where pairs are looked for. `kmeans` (by default; in mode `cluster` only): among records that
    have one of their `probes` nearest centers of `clusters` in common (null: 1,000 records a cluster, from a
    million records on the square root of their number); other pairs are not found, and more probes find more.
    `neighbours` (always so in mode `stream`): among records on the same sides of random planes; 99 % of the
    pairs at the threshold are found, wherever they lie. The work grows where many records point about the
    same way, and below a threshold of 0.9.

    `keep`: which one is kept, as in `dedup.near`; with `kmeans` also `hard` (the farthest from its center),
    `easy` (the nearest) or `random`. `scope`: only records that have the same value in this column are
    compared. `reference`: a SQL condition; records for which it is true are never removed, only those like
    them. `seed`: of centers and planes. `shards`: into how many parts the work is divided; null for 16, and
    for 4 with `neighbours`, where every record is in nearly all of them. `alarm_above`: as in `dedup.near`.

    With a GPU (`resources: {gpus: 1}`) centers, labels and comparisons are computed there, with the same
    result.

    Source: SemDeDup, Abbas et al. 2023 (kmeans); Charikar 2002 (neighbours).
    """

    name = "dedup.semantic"

    column: str = "embedding"
    mode: Literal["cluster", "stream"] = "cluster"
    threshold: float | None = None
    eps: float | None = None
    method: Literal["kmeans", "neighbours"] | None = None
    clusters: int | None = None
    probes: int = 2
    keep: Any = "first"
    scope: str | None = None
    reference: str | None = None
    radius: int | None = 1
    seed: int = 1
    shards: int | None = setting(default=None)
    alarm_above: Mapping[str, float] = setting(default_factory=lambda: dict(ALARM_ABOVE))

    def __post_init__(self) -> None:
        if self.threshold is not None and self.eps is not None:
            raise RecipeError("dedup.semantic: threshold and eps say the same (eps is 1 - threshold); give "
                              "one of them")
        if self.eps is not None and not 0 <= self.eps < 1:
            raise RecipeError(f"dedup.semantic: eps must be 0 or more and below 1, got {self.eps}")
        if self.mode not in ("cluster", "stream"):
            raise RecipeError(f"dedup.semantic: mode must be cluster or stream, got {self.mode!r}")
        if self.mode == "stream":
            self._check_stream()
        if self.method not in ("kmeans", "neighbours", None):
            raise RecipeError(f"dedup.semantic: method must be kmeans or neighbours, got {self.method!r}")
        check_clustering("dedup.semantic", self.radius, 16 if self.shards is None else self.shards,
                         self.alarm_above)
        self._method = self.method or ("kmeans" if self.mode == "cluster" else "neighbours")
        by_center = self.keep in BY_CENTER if isinstance(self.keep, str) else False
        if by_center and self._method != "kmeans":
            raise RecipeError(f"dedup.semantic: keep: {self.keep} goes by the centers of clusters, so it "
                              "needs method: kmeans")
        self._rank = self.keep if by_center else None
        self._keep = Keep() if by_center else Keep.parse(self.keep)
        self._measure = Cosine(self.column, self._least(), planes=self._method == "neighbours",
                               seed=self.seed)
        self._parts()  # nonsense in other fields is refused by these

    def _check_stream(self) -> None:
        if self.method == "kmeans":
            raise RecipeError("dedup.semantic: method: kmeans needs all records: set mode: cluster, or leave "
                              "method out")
        check_stream(self, keep="first", reference=None, radius=1, clusters=None)

    def _least(self) -> float:
        if self.eps is not None:
            return 1 - self.eps
        return THRESHOLD if self.threshold is None else self.threshold

    def contract(self) -> Contract:
        return Contract(needs=self._parts()[0].contract().needs)

    def _parts(self) -> tuple[Sketch, Centroids, FindPairs, Clusters, Split]:
        """The parts that are stages; those that multiply matrices get the resources of the whole."""
        shards = SHARDS[self._method] if self.shards is None else self.shards
        sketch = Sketch(measure=self._measure, keep=self._keep, scope=self.scope, reference=self.reference,
                        shards=1 if self._method == "kmeans" else shards)
        centroids = Centroids(clusters=self.clusters, probes=self.probes, rank=self._rank, seed=self.seed,
                              shards=shards)
        pairs = FindPairs(measure=self._measure, shards=shards)
        clusters = Clusters(radius=self.radius, drops_all=self._keep.drops_all)
        split = Split(measure=self._measure, shards=shards, alarm_above=self.alarm_above)
        return (sketch, centroids.with_(resources=self.resources), pairs.with_(resources=self.resources),
                clusters, split)

    def expand(self, rows: Any, folder: str, storage_options: dict[str, Any] | None) -> Any:
        if self.mode == "stream":
            return rows >> NearStream(measure=self._measure, scope=self.scope)
        sketch, centroids, pairs, clusters, split = self._parts()
        sketches = rows >> sketch
        if self._method == "kmeans":
            sketches = sketches >> centroids
        verdicts = (sketches >> pairs >> clusters).to(ToParquet(path=folder, storage_options=storage_options))
        return (rows + verdicts) >> split
