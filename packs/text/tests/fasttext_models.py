"""fastText models made from random numbers, as the files that fastText saves; and what fastText makes of a text, a feature at a time."""

from __future__ import annotations

import heapq
import math
import struct

import numpy as np

MASK32, MASK64 = (1 << 32) - 1, (1 << 64) - 1


def fnv(data: bytes) -> int:
    h = 2166136261
    for byte in data:
        h = ((h ^ ((byte - 256 if byte > 127 else byte) & MASK32)) * 16777619) & MASK32
    return h


class TinyModel:
    """A model with `words` and `labels`; `quantised` in two parts; `pruned`: every second hashed feature is gone, or `all`."""

    def __init__(self, words, labels, *, loss="softmax", ngrams=2, minn=2, maxn=3, bucket=50, dim=6, quantised=False, pruned=False, seed=0):
        rng = np.random.default_rng(seed)
        self.words, self.labels, self.loss, self.ngrams, self.minn, self.maxn = words, labels, loss, ngrams, minn, maxn
        self.bucket, self.dim, self.quantised = bucket, dim, quantised
        self.kept = {row: n for n, row in enumerate(range(0, bucket, 2))} if pruned else None
        self.kept = {} if pruned == "all" else self.kept
        rows = len(words) + (bucket if self.kept is None else len(self.kept))
        self.codes = rng.integers(0, 256, (rows, 2)).astype(np.uint8)
        self.centroids = rng.normal(size=(2, 256, dim // 2)).astype(np.float32)
        self.norm_codes = rng.integers(0, 256, rows).astype(np.uint8)
        self.norms = rng.uniform(0.5, 2, 256).astype(np.float32)
        self.input = rng.normal(size=(rows, dim)).astype(np.float32)
        if quantised:
            self.input = np.hstack([self.centroids[part][self.codes[:, part]] for part in range(2)]) * self.norms[self.norm_codes][:, None]
        self.output = rng.normal(size=(len(labels), dim)).astype(np.float32)
        self.counts = sorted(rng.integers(1, 1000, len(labels)).tolist(), reverse=True)

    def save(self) -> bytes:
        loss = {"hs": 1, "ns": 2, "softmax": 3, "ova": 4}[self.loss]
        args = (self.dim, 5, 5, 1, 5, self.ngrams, loss, 3, self.bucket, self.minn, self.maxn, 100)
        parts = [struct.pack("<ii12id", 793712314, 12, *args, 1e-4)]
        size = len(self.words) + len(self.labels)
        parts.append(struct.pack("<iiiqq", size, len(self.words), len(self.labels), 99, -1 if self.kept is None else len(self.kept)))
        parts += [word.encode() + b"\0" + struct.pack("<qb", 7, 0) for word in self.words]
        parts += [b"__label__" + label.encode() + b"\0" + struct.pack("<qb", n, 1)
                  for label, n in zip(self.labels, self.counts, strict=True)]
        parts += [struct.pack("<ii", *pair) for pair in (self.kept or {}).items()]
        parts.append(struct.pack("<?", self.quantised))
        if self.quantised:
            parts += [struct.pack("<?qqi", True, *self.input.shape, self.codes.size), self.codes.tobytes(),
                      struct.pack("<iiii", self.dim, 2, self.dim // 2, self.dim // 2), self.centroids.tobytes(),
                      self.norm_codes.tobytes(), struct.pack("<iiii", 1, 1, 1, 1), self.norms.tobytes()]
        else:
            parts += [struct.pack("<qq", *self.input.shape), self.input.tobytes()]
        return b"".join([*parts, struct.pack("<?qq", False, *self.output.shape), self.output.tobytes()])

    # -- as fastText does it ------------------------------------------------------------------------------------

    def _hashed(self, number: int) -> list[int]:
        row = number % self.bucket
        if self.kept is not None:
            return [len(self.words) + self.kept[row]] if row in self.kept else []
        return [len(self.words) + row]

    def features(self, text: str) -> list[int]:
        rows, hashes = [], []
        for char in "\n\r\t\v\f\0":
            text = text.replace(char, " ")
        for word in [*(part for part in text.split(" ") if part), "</s>"]:
            if word.startswith("__label__"):
                continue
            hashes.append(fnv(word.encode()))
            if word in self.words:
                rows.append(self.words.index(word))
            if self.maxn and word != "</s>":
                marked = f"<{word}>"
                rows += [row for start in range(len(marked)) for n in range(1, self.maxn + 1)
                         if start + n <= len(marked) and n >= self.minn and not (n == 1 and (start == 0 or start + 1 == len(marked)))
                         for row in self._hashed(fnv(marked[start:start + n].encode()))]
            if word == "</s>":
                break
        signed = [(h - (1 << 32) if h >> 31 else h) & MASK64 for h in hashes]
        for start in range(len(signed)):
            running = signed[start]
            for after in signed[start + 1:start + self.ngrams]:
                running = (running * 116049371 + after) & MASK64
                rows += self._hashed(running)
        return rows

    def probabilities(self, text: str) -> list[float]:
        """By label; with the 1e-5 that fastText adds to each before its logarithm."""
        rows = self.features(text)
        hidden = self.input[rows].astype(np.float64).mean(axis=0) if rows else np.zeros(self.dim)
        scores = self.output.astype(np.float64) @ hidden
        if self.loss == "softmax":
            exp = [math.exp(score) for score in scores]
            return [min(1, e / sum(exp) + 1e-5) for e in exp]
        if self.loss != "hs":
            return [min(1, 1 / (1 + math.exp(-score)) + 1e-5) for score in scores]
        # Huffman: of all nodes the two lightest are joined; of equal ones inner nodes first, older ones first, as in fastText.
        n = len(self.labels)
        heap = [(count, 1, -label, {label: 1.0}) for label, count in enumerate(self.counts)]
        heapq.heapify(heap)
        for node in range(n - 1):
            (a, _, _, left), (b, _, _, right) = heapq.heappop(heap), heapq.heappop(heap)
            go = 1 / (1 + math.exp(-scores[node]))
            ways = {k: v * (1 - go + 1e-5) for k, v in left.items()} | {k: v * (go + 1e-5) for k, v in right.items()}
            heapq.heappush(heap, (a + b, 0, node, ways))
        return [min(1, heap[0][3][label]) for label in range(n)]
