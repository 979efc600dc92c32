"""The file of a fastText model, `.bin` or quantised `.ftz`.

Ours because the Python package of fastText is no longer kept: it copies the whole model into each process and
fails on numpy 2. Everything is little endian; sizes are checked against those of the file before anything is
made of them. Matrices stay in the file (memory-mapped), so that all workers of a machine share them.

Source: facebookresearch/fastText, src/{fasttext,args,dictionary,densematrix,quantmatrix,productquantizer}.cc,
version 12 of the format.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from curator.api.errors import CuratorError

MAGIC = 793712314
LOSSES = {1: "hs", 2: "ns", 3: "softmax", 4: "ova"}
SUPERVISED = 3
_ARGS = ("dim", "ws", "epoch", "min_count", "neg", "word_ngrams", "loss", "model", "bucket", "minn", "maxn",
         "lr_update_rate")
_CENTROIDS = 256  # of a sub-quantiser


@dataclass
class Dense:
    """A matrix of float32."""

    values: np.ndarray

    def rows(self, indices: np.ndarray) -> np.ndarray:
        return self.values[indices]

    def whole(self) -> np.ndarray:
        return np.asarray(self.values)


@dataclass
class Quantised:
    """A matrix whose rows are codes: `codes` uint8 [rows, parts], `centroids` a list of float32 [256, width]
    by part; `norms` float32 [rows] multiplies a row, if there is one."""

    codes: np.ndarray
    centroids: list[np.ndarray]
    norms: np.ndarray | None

    def rows(self, indices: np.ndarray) -> np.ndarray:
        codes = self.codes[indices]
        found = np.concatenate([centroids[codes[:, part]] for part, centroids in enumerate(self.centroids)],
                               axis=1)
        return found if self.norms is None else found * self.norms[indices, None]

    def whole(self) -> np.ndarray:
        return self.rows(np.arange(len(self.codes)))


@dataclass
class FasttextFile:
    """What a file holds. `pruned`: [features, 2], hashed features that were kept and the rows they have now;
    None where all have theirs."""

    args: dict[str, int]
    words: list[bytes]
    labels: list[bytes]
    label_counts: list[int]
    pruned: np.ndarray | None
    input: Dense | Quantised
    output: Dense | Quantised


def read_fasttext(path: str | Path) -> FasttextFile:
    """The model in a file on this machine.

    Raises:
        CuratorError: it is no supervised fastText model of version 11 or 12, or it is damaged; says what is
        wrong.
    """
    try:
        with open(path, "rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        raise CuratorError(f"{str(path)!r} cannot be read as a fastText model: {error}") from error
    try:
        return _Reader(data).model()
    except (_Damaged, struct.error) as error:
        raise CuratorError(f"{str(path)!r} is no fastText model that can be read: {error}. Classifiers that "
                           "fastText saved as .bin or .ftz will do") from error


class _Damaged(Exception):
    pass


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 0

    def take(self, layout: str) -> tuple[Any, ...]:
        found = struct.unpack_from("<" + layout, self.data, self.at)
        self.at += struct.calcsize("<" + layout)
        return found

    def one(self, layout: str) -> Any:
        return self.take(layout)[0]

    def array(self, kind: str, *shape: int) -> np.ndarray:
        """`shape` as it is in the file, which must be long enough for it."""
        size = np.dtype(kind).itemsize
        for length in shape:
            size *= length
        if min(shape) < 0 or self.at + size > len(self.data):
            raise _Damaged(f"it ends before a matrix of {' x '.join(map(str, shape))}, at byte {self.at:,} "
                           f"of {len(self.data):,}")
        values = np.frombuffer(self.data, kind, count=size // np.dtype(kind).itemsize,
                               offset=self.at).reshape(shape)
        self.at += size
        return values

    def model(self) -> FasttextFile:
        magic, version = self.take("ii")
        if magic != MAGIC:
            raise _Damaged("it does not begin with fastText's mark")
        if version not in (11, 12):
            raise _Damaged(f"its version is {version}, and 11 and 12 are known")
        args = dict(zip(_ARGS, self.take("12i"), strict=True))
        self.take("d")
        if args["model"] != SUPERVISED or args["loss"] not in LOSSES:
            raise _Damaged("it holds word vectors and no classifier")
        if version == 11:
            args["maxn"] = 0
        if (not 0 < args["dim"] <= 1 << 16 or not args["minn"] >= 0 or not 0 <= args["maxn"] <= 64
            or args["bucket"] < 0):
            raise _Damaged(f"its numbers make no sense: {args}")
        words, labels, counts, pruned = self.dictionary(args["bucket"])
        quantised = self.one("?")
        rows = self.matrix(quantised, args["dim"])
        output = self.matrix(self.one("?") and quantised, args["dim"])
        wanted = len(words) + (args["bucket"] if pruned is None else len(pruned))
        if len(rows.codes if isinstance(rows, Quantised) else rows.values) != wanted:
            raise _Damaged(f"its first matrix should have {wanted:,} rows")
        if len(output.codes if isinstance(output, Quantised) else output.values) != len(labels):
            raise _Damaged(f"its second matrix should have {len(labels):,} rows, one a label")
        return FasttextFile(args, words, labels, counts, pruned, rows, output)

    def dictionary(self, bucket: int) -> tuple[list[bytes], list[bytes], list[int], np.ndarray | None]:
        size, n_words, n_labels = self.take("iii")
        _, n_pruned = self.take("qq")
        if (min(size, n_words, n_labels) < 0 or n_words + n_labels != size or not n_labels
            or self.at + 10 * size > len(self.data)):
            raise _Damaged(f"its dictionary of {n_words:,} words and {n_labels:,} labels makes no sense")
        names, counts = [], []
        for place in range(size):
            end = self.data.find(b"\0", self.at)
            if end < 0:
                raise _Damaged("its dictionary has no end")
            names.append(self.data[self.at:end])
            self.at = end + 1
            count, kind = self.take("qb")
            if kind != (place >= n_words):
                raise _Damaged("a label stands among the words of its dictionary")
            counts.append(count)
        pruned = None
        if n_pruned >= 0:
            pruned = self.array("<i4", n_pruned, 2)
            if len(pruned) and (pruned.min() < 0 or pruned[:, 1].max() >= n_pruned
                                or pruned[:, 0].max() >= bucket):
                raise _Damaged("its table of features that were kept makes no sense")
        return names[:n_words], names[n_words:], counts[n_words:], pruned

    def matrix(self, quantised: bool, dim: int) -> Dense | Quantised:
        with_norms = quantised and self.one("?")
        rows, columns = self.take("qq")
        if columns != dim:
            raise _Damaged(f"a matrix has {columns} columns where {dim} are due")
        if not quantised:
            return Dense(self.array("<f4", rows, columns))
        size = self.one("i")
        parts = size // rows if rows else 0
        codes = self.array("u1", rows, parts)
        centroids = self.centroids(dim, parts)
        if not with_norms:
            return Quantised(codes, centroids, None)
        norm_codes = self.array("u1", rows)
        return Quantised(codes, centroids, self.centroids(1, 1)[0][norm_codes, 0])

    def centroids(self, dim: int, parts: int) -> list[np.ndarray]:
        of, n, width, last = self.take("iiii")
        if of != dim or n != parts or min(n, width, last) < 1 or (n - 1) * width + last != dim:
            raise _Damaged(f"a quantiser of {n} parts for {of} dimensions stands where {parts} for {dim} are "
                           "due")
        values = self.array("<f4", dim * _CENTROIDS)
        cuts = [part * _CENTROIDS * width for part in range(n)] + [dim * _CENTROIDS]
        return [values[a:b].reshape(_CENTROIDS, -1) for a, b in pairwise(cuts)]
