"""Of equal records keep one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from curator import sql
from curator.api.errors import RecipeError
from curator.api.stage import Composite, Contract, setting
from curator.io.tables.parquet import ToParquet
from curator_dedup.exact.cluster import Equals, Value, Values
from curator_dedup.exact.stream import ExactStream
from curator_dedup.shared.keep import Keep
from curator_dedup.shared.options import ALARM_ABOVE, check_clustering
from curator_dedup.shared.split import Split


@dataclass(kw_only=True)
class DedupExact(Composite):
    """Let one of equal records through; the others go to `duplicate`, naming it in `duplicate_of`.

    `column`: the column or payload to compare (text, bytes, numbers, nested values), or several, which must
    all be equal. `normalize`: compare texts without regard to case, runs of white space and compatible
    Unicode forms (NFKC); `url` compares them as addresses. `scope`: a column; only records with the same
    value there are compared.

    `mode`: `stream` decides as records come, and the first to arrive is kept. `cluster` sees all before it
    decides, and can say which one: `keep` is `first` (the smallest id), `longest`, `{newest: column}`, `{by:
    column, order: desc}`, `{sources: [pattern, …]}`, `none`, or a list of these, compared one after the
    other. `reference`: a condition in SQL; records for which it is true are never removed, and those that
    equal one of them always are. `shards`: into how many parts they are divided, each worked on alone.
    `alarm_above`: shares above which one `cluster`, or what one `source` loses, raises an alarm.

    A record that has null there (in all of the columns) equals no other and goes on; empty texts are equal.
    Values are compared by a 128-bit hash. Two records that share an id but not the value are two records; two
    that share both are duplicates. `similarity` is 1 and `cluster` a hash of the value. In mode `cluster` the
    records of all clusters, with their sizes, are written to `clusters/<name>` beside the output.
    """

    name = "dedup.exact"

    column: str | list[str] = "text"
    normalize: bool | Literal["text", "url"] = False
    mode: Literal["stream", "cluster"] = "stream"
    keep: str | dict[str, Any] | list[Any] = "first"
    scope: str | None = None
    reference: str | None = None
    shards: int = setting(default=16)
    alarm_above: Mapping[str, float] = setting(default_factory=lambda: dict(ALARM_ABOVE))

    def __post_init__(self) -> None:
        if not self._columns:
            raise RecipeError("dedup.exact wants a column to compare records by")
        if self.normalize not in (False, True, "text", "url"):
            raise RecipeError("dedup.exact: normalize must be false, true, text or url, got "
                              f"{self.normalize!r}")
        if self.mode not in ("stream", "cluster"):
            raise RecipeError(f"dedup.exact: mode must be stream or cluster, got {self.mode!r}")
        check_clustering("dedup.exact", 1, self.shards, self.alarm_above)
        if Keep.parse(self.keep) != Keep() and self.mode == "stream":
            raise RecipeError("dedup.exact: in mode stream the first record to arrive is kept; another keep "
                              "wants mode: cluster")
        if self.reference is not None:
            if self.mode == "stream":
                raise RecipeError("dedup.exact: reference wants mode: cluster, which sees all records before "
                                  "it decides")
            sql.needs({"reference": self.reference})

    @property
    def _columns(self) -> list[str]:
        return [self.column] if isinstance(self.column, str) else list(self.column)

    def contract(self) -> Contract:
        return self._first().contract()

    def _first(self) -> ExactStream | Values:
        """The part that gets the records first."""
        if self.mode == "stream":
            return ExactStream(column=self._columns, normalize=self.normalize, scope=self.scope,
                               alarm_above=self.alarm_above)
        value = Value(column=tuple(self._columns), normalize=self.normalize, scope=self.scope)
        return Values(value=value, keep=Keep.parse(self.keep), reference=self.reference)

    def expand(self, rows: Any, folder: str, storage_options: dict[str, Any] | None) -> Any:
        first = self._first()
        if isinstance(first, ExactStream):
            return rows >> first
        verdicts = rows >> first >> Equals(drops_all=first.keep.drops_all, shards=self.shards)
        written = verdicts.to(ToParquet(path=folder, storage_options=storage_options))
        return (rows + written) >> Split(measure=first.value, shards=self.shards,
                                         alarm_above=self.alarm_above)
