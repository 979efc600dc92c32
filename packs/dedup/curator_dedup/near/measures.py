"""How alike two records are: sketches that are compared, and keys under which records that may be alike
meet."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curator.api.batch import Batch
from curator.api.errors import RecipeError
from curator_dedup.shared.arrays import flat, mix

RECALL = 0.99  # of pairs that are just alike enough, the share that is to meet
SEED = 20_260_101  # of the choice of bits
# 2^32 divided by the golden ratio (Knuth, The Art of Computer Programming 3, 6.4)
_ODD = np.uint32(0x9E3779B1)


class Measure(Protocol):
    """What is compared, and how. A frozen dataclass, so that it travels to workers and into fingerprints."""

    @property
    def threshold(self) -> float:
        """Least similarity of a pair; NaN where it depends on the width of sketches, see `least`."""

    def needs(self) -> set[str]:
        """The columns that are read."""

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        """Raise a `RecipeError` when columns of these types will not do."""

    def encode(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """Which rows have anything to compare, bool [n]; their sketches, uint8 [n, width], zeros for the
        others."""

    def keys(self, batch: Batch, sketches: np.ndarray) -> np.ndarray:
        """uint64 [n, bands]: rows that share a key meet. The band's number is mixed into the key: rows meet
        within one band."""

    def similarity(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """float32 [m]: how alike the sketches a[i] and b[i] are, each uint8 [m, width]; 1 is equal."""

    def least(self, width: int) -> float:
        """Least similarity of a pair of sketches of so many bytes."""
        return self.threshold


@dataclass(frozen=True)
class MinHash(Measure):
    """Jaccard similarity of sets, from their MinHash signatures.

    `column`: list<uint32> of K values, all rows as many (fixed_size_list too); null or empty: nothing to
    compare. `threshold`: least Jaccard similarity. `bands`, `rows`: records meet where all `rows` values of
    one of the `bands` agree, that is with probability 1 - (1 - J^rows)^bands. By default the most rows, which
    bring the fewest wrong candidates, for which this is at least 0.99 at the threshold.

    A sketch keeps one byte of each value, so that two different values agree once in 256 times: J = (share of
    equal bytes - 1/256) / (1 - 1/256), with a standard error of about sqrt(J (1 - J) / K), 0.04 at J = 0.8
    and K = 112.

    Source: Broder 1997 (MinHash); Indyk and Motwani 1998 (bands); Li and König 2010, b-bit minwise hashing
    (one byte).
    """

    column: str = "minhash"
    threshold: float = 0.8
    bands: int | None = None
    rows: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise RecipeError(f"minhash: threshold must be above 0 and at most 1, got {self.threshold}")
        for name, value in (("bands", self.bands), ("rows", self.rows)):
            if value is not None and value < 1:
                raise RecipeError(f"minhash: {name} must be 1 or more, got {value}")

    def needs(self) -> set[str]:
        return {self.column}

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        kind = columns.get(self.column)
        if kind is None or pa.types.is_null(kind):
            return
        if not (is_list(kind) and kind.value_type == pa.uint32()):
            raise RecipeError(f"column {self.column!r} is {kind}; MinHash signatures are lists of uint32 "
                              "(see text.minhash)")
        if pa.types.is_fixed_size_list(kind):
            self.shape(kind.list_size)

    def shape(self, values: int) -> tuple[int, int]:
        """Bands and rows for signatures of so many values.

        Raises:
            RecipeError: the bands and rows that were asked for need more values than there are.
        """
        if self.rows is None:
            fitting = [r for r in range(1, values + 1)
                       if meet(self.threshold, self.bands or values // r, r) >= RECALL
                       and (self.bands or 1) * r <= values]
            rows = max(fitting, default=1)
        else:
            rows = self.rows
        bands = self.bands or values // rows
        if not bands or bands * rows > values:
            raise RecipeError(f"column {self.column!r} has signatures of {values} values, too few for "
                              f"{max(1, bands)} bands of "
                              f"{rows}: ask for fewer, or for longer signatures")
        return bands, rows

    def encode(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        present, signatures = self._signatures(batch)
        sketches = np.zeros((len(batch), signatures.shape[1]), dtype=np.uint8)
        # Highest byte of a product: it depends on all bits of the value, whatever hash function made it.
        sketches[present] = ((signatures * _ODD) >> np.uint32(24)).astype(np.uint8)
        return present, sketches

    def keys(self, batch: Batch, sketches: np.ndarray) -> np.ndarray:
        present, signatures = self._signatures(batch)
        if not present.any():
            return np.zeros((len(batch), 0), dtype=np.uint64)
        bands, rows = self.shape(signatures.shape[1])
        keys = np.zeros((len(batch), bands), dtype=np.uint64)
        values = signatures[:, :bands * rows].reshape(-1, bands, rows)
        mixed = mix(np.arange(bands, dtype=np.uint64) + np.uint64(1))[None, :]
        for row in range(rows):
            mixed = mix(mixed ^ values[:, :, row])
        keys[present] = mixed
        return keys

    def similarity(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        share = count_equal(a, b) / np.float32(a.shape[1])
        return ((share - np.float32(1 / 256)) / np.float32(255 / 256)).astype(np.float32)

    def doubtful(self, width: int) -> float:
        """An estimate from `width` values below which the true similarity is not at the threshold: five
        standard errors.

        A pair at the threshold is below that once in three million times (normal approximation); one above it
        less often.
        """
        return self.threshold - 5 * math.sqrt(max(self.threshold * (1 - self.threshold), 1 / width) / width)

    def _signatures(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """Which rows have a signature, and these signatures, uint32 [present, K]."""
        column = flat(batch.rows.column(self.column))
        if pa.types.is_null(column.type):
            return np.zeros(len(batch), dtype=bool), np.zeros((0, 0), dtype=np.uint32)
        sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        present = sizes > 0
        lengths = np.unique(sizes[present])
        if len(lengths) > 1:
            raise ValueError(f"column {self.column!r} has signatures of {lengths[0]} and of {lengths[1]} "
                             "values; "
                             "only equally long ones can be compared")
        values = pc.list_flatten(column)
        if values.null_count:
            raise ValueError(f"column {self.column!r} has a signature with a null in it")
        signatures = values.cast(pa.uint32()).to_numpy(zero_copy_only=False)
        return present, signatures.reshape(int(present.sum()), int(lengths[0]) if len(lengths) else 0)


@dataclass(frozen=True)
class Hamming(Measure):
    """In how many bits two hashes of n bits differ: the similarity is 1 - bits / n.

    `column`: binary, fixed_size_binary, uint64, int64, or strings of hexadecimal digits; all of one width;
    null or empty: nothing to compare. Or lists of these, at most `hashes` a record, of which nulls do not
    count: two records are as similar as the nearest two of their hashes. `distance`: the most bits in which a
    pair differs.

    Hashes are cut into distance + 1 blocks, one of which is equal in each such pair, so that all pairs meet;
    where a block would be shorter than 12 bits, samples of 16 bits at random places are taken instead, as
    many as make 99 % of the pairs meet that are `distance` bits apart. A record has the keys of all its
    hashes.

    A sketch is the hash; of a list, `hashes` of them one after the other, the first one again where the list
    is shorter.

    Source: the pigeonhole blocks of Manku et al. 2007; bit sampling of Indyk and Motwani 1998.
    """

    column: str
    distance: int
    hashes: int = 1

    block_bits: ClassVar[int] = 12  # shorter blocks of a hash make most records meet
    sample_bits: ClassVar[int] = 16
    recall: ClassVar[float] = RECALL
    keys_most: ClassVar[int] = 512  # a record; more bits apart than these can find is no near duplicate

    def __post_init__(self) -> None:
        if self.distance < 0:
            raise RecipeError(f"hamming: distance must be 0 or more, got {self.distance}")
        if self.hashes < 1:
            raise RecipeError(f"hamming: hashes must be 1 or more, got {self.hashes}")

    @property
    def threshold(self) -> float:
        return math.nan

    def least(self, width: int) -> float:
        return 1 - self.distance / (8 * width // self.hashes)

    def needs(self) -> set[str]:
        return {self.column}

    def check(self, columns: Mapping[str, pa.DataType | None]) -> None:
        kind = columns.get(self.column)
        if kind is not None and is_list(kind):
            fewest = kind.list_size if pa.types.is_fixed_size_list(kind) else 2
            if self.hashes < fewest:
                raise RecipeError(f"column {self.column!r} is {kind}: set hashes to the most that a record "
                                  "has, such as 8, "
                                  f"not {self.hashes}")
            kind = kind.value_type
        if kind is None or pa.types.is_null(kind):
            return
        if pa.types.is_uint64(kind) or pa.types.is_int64(kind):
            self.blocks(64)
        elif pa.types.is_fixed_size_binary(kind):
            self.blocks(8 * kind.byte_width)
        elif not (_is_bytes(kind) or _is_text(kind)):
            raise RecipeError(f"column {self.column!r} is {kind}; hashes are binary, uint64, int64 or "
                              "strings of hexadecimal "
                              "digits")

    def blocks(self, bits: int) -> list[np.ndarray]:
        """The places of the bits that make each key, for hashes of so many bits.

        Raises:
            RecipeError: the distance is too large to be searched.
        """
        if self.distance >= bits:
            raise RecipeError(f"column {self.column!r} has hashes of {bits} bits, and any two are within "
                              f"{self.distance} bits: "
                              "ask for a smaller distance")
        if bits // (self.distance + 1) >= self.block_bits or self.distance == 0:
            return np.array_split(np.arange(bits), self.distance + 1)
        size = min(self.sample_bits, bits - self.distance)
        equal = math.comb(bits - self.distance, size) / math.comb(bits, size)
        samples = math.ceil(math.log(1 - self.recall) / math.log1p(-equal))
        if samples * self.hashes > self.keys_most:
            raise RecipeError(f"column {self.column!r} has hashes of {bits} bits; for a distance of "
                              f"{self.distance}, "
                              f"{samples * self.hashes} keys a record would be needed, and {self.keys_most} "
                              "is the most: ask for a "
                              "smaller distance" + (" or fewer hashes" if self.hashes > 1 else ""))
        choice = np.random.Generator(np.random.PCG64(SEED))
        return [np.sort(choice.permutation(bits)[:size]) for _ in range(samples)]

    def encode(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        column = flat(batch.rows.column(self.column))
        row, values = np.arange(len(column)), column
        if is_list(column.type):
            sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
            row, values = np.repeat(row, sizes), pc.list_flatten(column)
        there, hashes = self._hashes(values)
        row, width = row[there], hashes.shape[1]
        counts = np.bincount(row, minlength=len(column))
        if counts.max(initial=0) > self.hashes:
            raise ValueError(f"column {self.column!r} has {counts.max()} hashes in a record, and hashes is "
                             f"{self.hashes}: "
                             "set it to the most that a record has")
        present, first = counts > 0, np.cumsum(counts) - counts
        place = np.arange(self.hashes)
        chosen = first[present, None] + np.where(place < counts[present, None], place, 0)
        sketches = np.zeros((len(column), self.hashes * width), dtype=np.uint8)
        sketches[present] = hashes[chosen].reshape(len(chosen), self.hashes * width)
        return present, sketches

    def _hashes(self, values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        """Which values are hashes, bool [n]; and these, uint8 [m, width]."""
        kind, there = values.type, pc.is_valid(values).to_numpy(zero_copy_only=False)
        if pa.types.is_uint64(kind) or pa.types.is_int64(kind):
            numbers = values.drop_null().to_numpy(zero_copy_only=False)
            return there, numbers.astype(">i8" if pa.types.is_int64(kind)
                                         else ">u8").view(np.uint8).reshape(-1, 8)
        if pa.types.is_null(kind):
            return there, np.zeros((0, 0), dtype=np.uint8)
        there &= pc.fill_null(pc.greater(pc.binary_length(values), 0), False).to_numpy(zero_copy_only=False)
        return there, self._bytes(values.filter(pa.array(there)))

    def _bytes(self, values: pa.Array) -> np.ndarray:
        """Hashes that are bytes or hexadecimal digits, uint8 [n, width]."""
        if _is_text(values.type):
            wrong = values.filter(pc.invert(pc.match_substring_regex(values, "^([0-9a-fA-F]{2})+$")))
            if len(wrong):
                raise ValueError(f"column {self.column!r}: {wrong[0].as_py()[:80]!r} is no hexadecimal "
                                 "number of whole bytes")
        lengths = pc.unique(pc.binary_length(values)).to_pylist()
        if len(lengths) > 1:
            raise ValueError(f"column {self.column!r} has hashes of different widths, such as {lengths[0]} "
                             f"and {lengths[1]}; "
                             "only equally wide ones can be compared")
        if not lengths:
            return np.zeros((0, 0), dtype=np.uint8)
        joined = b"".join(values.cast(pa.large_binary()).to_pylist())
        if _is_text(values.type):
            joined = bytes.fromhex(joined.decode())
        return np.frombuffer(joined, dtype=np.uint8).reshape(len(values), -1)

    def keys(self, batch: Batch, sketches: np.ndarray) -> np.ndarray:
        if not sketches.shape[1]:
            return np.zeros((len(sketches), 0), dtype=np.uint64)
        bits = np.unpackbits(sketches.reshape(len(sketches) * self.hashes, sketches.shape[1] // self.hashes),
                             axis=1)
        found = []
        for band, places in enumerate(self.blocks(bits.shape[1])):
            mixed = np.full(len(bits), mix(np.uint64(band + 1)), dtype=np.uint64)
            for at in range(0, len(places), 64):
                packed = np.packbits(bits[:, places[at:at + 64]], axis=1)
                word = np.zeros((len(bits), 8), dtype=np.uint8)
                word[:, :packed.shape[1]] = packed
                mixed = mix(mixed ^ word.view("<u8")[:, 0])
            found.append(mixed)
        return np.stack(found, axis=1).reshape(len(sketches), self.hashes * len(found))

    def similarity(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        width = a.shape[1] // self.hashes
        a, b = a.reshape(len(a), self.hashes, width), b.reshape(len(b), self.hashes, width)
        nearest = np.full(len(a), 8 * width)
        for number in range(self.hashes):
            different = a[:, number:number + 1] ^ b
            words = different.view(np.uint64) if width % 8 == 0 else different
            nearest = np.minimum(nearest, np.bitwise_count(words).sum(axis=2, dtype=np.int32).min(axis=1))
        return (1 - nearest / (8 * width)).astype(np.float32)


# -- shared by measures --------------------------------------------------------------------------------------


def meet(similarity: float, bands: int, rows: int) -> float:
    """The probability that two signatures agree in all rows of at least one band."""
    return 1 - (1 - similarity ** rows) ** bands


def count_equal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """In how many places rows of a and b, uint8 [m, width], agree; int64 [m]."""
    same = a == b
    if same.shape[1] % 8 or not same.flags.c_contiguous:
        return np.count_nonzero(same, axis=1)
    return np.bitwise_count(same.view(np.uint64)).sum(axis=1, dtype=np.int64)  # each true is a byte of 1


def is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
