"""How much more a text looks like wanted data than like the rest: importance of DSIR."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from curator import sql
from curator.api.batch import Batch
from curator.api.counts import Counts
from curator.api.findings import Alarm, Finding
from curator.api.stage import Context, Contract, Outputs, Reduce
from curator.models.vectors import present
from curator.ngrams.hashing import groups, mixed, word_grams
from curator.stages.sample import chance

_LEAST = 1e-8  # added to each share, as the authors' code does, so that what never occurs has a logarithm


@dataclass(kw_only=True)
class Dsir(Reduce):
    """Score texts by how much likelier they are among wanted data than among the rest, by hashed n-grams of
    words: the importance weights of DSIR.

    A barrier: it sees all records before it judges one. Adds `dsir` (float64: the sum over a text's n-grams
    of the logarithm of their share in the wanted data divided by that in the rest; above 0 where a text is
    rather like the wanted; null where there is no text, and everywhere if there is nothing wanted or nothing
    else) and `dsir_draw` (float64: `dsir` with Gumbel noise by a hash of `seed` and id): `top: {by:
    dsir_draw, n: 100000}` draws so many texts without putting back, with weights by their importance, as DSIR
    does; `top` by `dsir` takes the likest.

    `target`: a condition in SQL, true of the wanted data, which runs along (`source LIKE 'wiki/%'`).
    `ngrams`: of 1 to so many words; words are compared without case, punctuation and diacritics. `buckets`:
    so many hashes. `max_chars`: so many characters of a text are looked at; null: all. Long texts have larger
    sums.

    Known difference: punctuation marks are words of their own in the authors' code. Source: Xie et al. 2023,
    arXiv 2302.03169, and github.com/p-lambda/dsir.
    """

    target: str
    column: str = "text"
    into: str = "dsir"
    ngrams: int = 2
    buckets: int = 10_000
    max_chars: int | None = None
    seed: int = 0

    key = None

    def __post_init__(self) -> None:
        sql.columns_of(self.target)
        if not 1 <= self.ngrams <= 5 or not 2 <= self.buckets <= 1 << 24:
            raise ValueError(f"ngrams must be from 1 to 5 and buckets from 2 to {1 << 24}, got "
                             f"{self.ngrams} and {self.buckets}")
        self.at_least(1, "max_chars")
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"seed must be from 0 to 2**64 - 1, got {self.seed}")
        self.columns = tuple(sorted({self.column, *sql.columns_of(self.target)}))

    def contract(self) -> Contract:
        return Contract(needs=set(self.columns or ()),
                        adds={self.into: pa.float64(), f"{self.into}_draw": pa.float64()})

    def findings(self, step: str, counts: Counts) -> Iterator[Finding]:
        if counts.extra.get("one_sided"):
            wanted, read = counts.extra.get("wanted", 0), counts.extra.get("read", 0)
            yield Alarm("error", f"{step} scored nothing: `target` is true of {wanted:,} of {read:,} texts: "
                        "both wanted and other texts are needed")

    # -- pass one ----------------------------------------------------------------------------------------

    def setup(self, ctx: Context) -> None:
        self.clear()

    def clear(self) -> None:
        self._seen = np.zeros((2, self.buckets), np.int64)  # n-grams of the rest, and of the wanted
        self._texts = np.zeros(2, np.int64)
        self._weights: np.ndarray | None = None

    def absorb(self, batch: Batch) -> None:
        at, places, of = self._places(batch)
        met = sql.evaluate({"wanted": self.target}, batch.rows).is_valid()
        wanted = met.to_numpy(zero_copy_only=False)[at]
        for side in (0, 1):
            mine = wanted == bool(side)
            self._seen[side] += np.bincount(places[mine[of]], minlength=self.buckets)
            self._texts[side] += int(mine.sum())

    def finish(self) -> Iterator[Outputs]:
        counts = {"read": int(self._texts.sum()), "wanted": int(self._texts[1])}
        totals = self._seen.sum(axis=1, keepdims=True)
        if totals.all():
            rest, wanted = np.log(self._seen / totals + _LEAST)
            self._weights = wanted - rest
        else:
            counts["one_sided"] = 1
        yield Outputs(counts=counts)

    # -- pass two ----------------------------------------------------------------------------------------

    def process(self, batch: Batch) -> Batch:
        scores = np.full(len(batch), np.nan)
        if self._weights is not None:
            at, places, of = self._places(batch)
            scores[at] = np.bincount(of, self._weights[places], minlength=len(at))
        luck = np.clip(chance(batch.rows.column("id"), self.seed), 1e-300, 1 - 1e-16)
        absent = np.isnan(scores)
        return batch.with_columns({
            self.into: pa.array(scores, pa.float64(), mask=absent),
            f"{self.into}_draw": pa.array(scores - np.log(-np.log(luck)), pa.float64(), mask=absent)})

    def _places(self, batch: Batch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The rows with a text; the bucket of each of their n-grams, and the number of the text that it is
        of."""
        texts = batch.column(self.column)
        at = present(texts)
        return at, *hashed([texts[row][:self.max_chars] for row in at], self.ngrams, self.buckets)


def hashed(texts: Sequence[str], ngrams: int, buckets: int) -> tuple[np.ndarray, np.ndarray]:
    """The buckets of all n-grams of 1 to so many words of the texts, and the number of the text of each."""
    places, of = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for rows in groups(texts):
        for n in range(1, ngrams + 1):
            grams = word_grams([texts[row] for row in rows], n)
            places.append((mixed(grams.hashes + np.uint64(n)) % np.uint64(buckets)).astype(np.int64))
            of.append(np.repeat(np.array(rows, np.int64), np.diff(grams.of)))
    return np.concatenate(places), np.concatenate(of)
