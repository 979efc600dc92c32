"""How good a deduplication is, against exact similarities: of removals, of pairs, of clusters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

UNLIKE = 0.5  # two records below it are no near duplicates by anybody's threshold


@dataclass(frozen=True)
class Truth:
    """The tables that dedup_truth.py writes. `first`, `second`: records by number; all pairs of 0.3 and more are there."""

    ids: list[str]
    kind: np.ndarray
    family: np.ndarray
    level: np.ndarray
    words: np.ndarray
    first: np.ndarray
    second: np.ndarray
    jaccard: np.ndarray

    @classmethod
    def read(cls, folder: Path) -> Truth:
        records, pairs = pq.read_table(folder / "records.parquet"), pq.read_table(folder / "pairs.parquet")
        ids = records["id"].to_pylist()
        number = {name: i for i, name in enumerate(ids)}
        first, second = (np.array([number[i] for i in pairs[c].to_pylist()], dtype=np.int64) for c in ("id", "other"))
        level = np.array([np.nan if v is None else v for v in records["level"].to_pylist()])
        return cls(ids, np.array(records["kind"].to_pylist()), records["family"].to_numpy(), level, records["words"].to_numpy(),
                   first, second, pairs["jaccard"].to_numpy())


    def without_chains(self, answer: Answer) -> tuple[Truth, Answer]:
        """Truth and answer for the records that are in no chain: whether a chain's ends belong together is open."""
        stays = self.kind != "chain"
        number = np.cumsum(stays) - 1
        pair = stays[self.first] & stays[self.second]
        ids = [name for name, kept in zip(self.ids, stays.tolist(), strict=True) if kept]
        truth = Truth(ids, self.kind[stays], self.family[stays], self.level[stays], self.words[stays],
                      number[self.first[pair]], number[self.second[pair]], self.jaccard[pair])
        return truth, Answer(answer.kept[stays], answer.cluster[stays])


@dataclass(frozen=True)
class Answer:
    """What a tool did: which records it kept, and in which cluster each is (a number; records by themselves have their own)."""

    kept: np.ndarray
    cluster: np.ndarray

    @classmethod
    def of(cls, told: dict[str, Any], ids: list[str]) -> Answer:
        """From `kept` (ids) and `clusters` (id -> label, of those that are in one)."""
        kept = set(told["kept"])
        labels: dict[Any, int] = {}
        cluster = [labels.setdefault(told["clusters"].get(i, ("alone", i)), len(labels)) for i in ids]
        return cls(np.array([i in kept for i in ids]), np.array(cluster))


def removals(truth: Truth, answer: Answer, threshold: float) -> dict[str, float]:
    """Precision, recall and F1 of "is removed as a duplicate", whichever record of a group a tool keeps.

    Right: a removed record with a kept one of `threshold` or more. Wrong: one without. Missed: what is still to be removed of the
    kept ones, so that no two of `threshold` or more stay, going through them longest first. `precision_near`: with 0.1 less.
    `lost`: removed, and no kept record is even UNLIKE: its content is gone.
    """
    best = best_kept(truth, answer)
    gone = ~answer.kept
    right, near, like = ((best[gone] >= t).sum() for t in (threshold, threshold - 0.1, UNLIKE))
    missed = still_double(truth, answer, threshold)
    found = ratios(int(right), int(gone.sum() - right), missed)
    return found | {"precision_near": share(near, gone.sum()), "lost": int(gone.sum() - like), "removed": int(gone.sum()),
                    "missed": missed}


def still_double(truth: Truth, answer: Answer, threshold: float) -> int:
    alike = answer.kept[truth.first] & answer.kept[truth.second] & (truth.jaccard >= threshold)
    others: dict[int, list[int]] = {}
    for a, b in zip(truth.first[alike].tolist(), truth.second[alike].tolist(), strict=True):
        others.setdefault(a, []).append(b)
        others.setdefault(b, []).append(a)
    stays: set[int] = set()
    for record in sorted(others, key=lambda r: (-truth.words[r], r)):
        if stays.isdisjoint(others[record]):
            stays.add(record)
    return len(others) - len(stays)


def pairs(truth: Truth, answer: Answer, threshold: float) -> dict[str, float]:
    """Precision, recall and F1 of "these two are in one cluster", against "these two are `threshold` or more alike"."""
    alike = truth.jaccard >= threshold
    together = int((answer.cluster[truth.first] == answer.cluster[truth.second])[alike].sum())
    return ratios(together, couples(answer.cluster) - together, int(alike.sum()) - together)


def core(truth: Truth, answer: Answer, threshold: float) -> dict[str, float]:
    """The figures of text-dedup's benchmark on CORE (its benchmarks/benchmark_core.py, 0.4.1).

    A record is a true positive if its cluster holds all records that are its duplicates (and maybe more), a false positive if it
    has a cluster otherwise, a false negative if it has duplicates and no cluster. `as_published`: what their tables call the
    macro F1 score, which their code says is the mean of the precisions of both classes. `macro_f1`: the mean of both F1.
    """
    alike = truth.jaccard >= threshold
    first, second = truth.first[alike], truth.second[alike]
    many = len(truth.ids)
    degree = np.bincount(first, minlength=many) + np.bincount(second, minlength=many)
    same = answer.cluster[first] == answer.cluster[second]
    held = np.bincount(first[same], minlength=many) + np.bincount(second[same], minlength=many)
    predicted = np.bincount(answer.cluster)[answer.cluster] > 1
    right = predicted & (degree > 0) & (held == degree)
    tp, fp = int(right.sum()), int((predicted & ~right).sum())
    fn, tn = int((~predicted & (degree > 0)).sum()), int((~predicted & (degree == 0)).sum())
    duplicates, others = ratios(tp, fp, fn), ratios(tn, fn, fp)
    return {"as_published": (duplicates["precision"] + others["precision"]) / 2,
            "macro_f1": (duplicates["f1"] + others["f1"]) / 2}


def components(many: int, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The smallest record that each one is connected with."""
    label = np.arange(many)
    while True:
        least = np.minimum(label[first], label[second])
        before = label.copy()
        np.minimum.at(label, first, least)
        np.minimum.at(label, second, least)
        label = label[label]
        if (label == before).all():
            return label


def adjusted_rand_index(a: np.ndarray, b: np.ndarray) -> float:
    """Agreement of two clusterings, 1 when they are equal and about 0 by chance.

    Source: Hubert & Arabie 1985, Comparing partitions, J. of Classification 2, equation 5; NEWS-COPY is judged by it.
    """
    together, first, second = couples(np.stack([a, b])), couples(a), couples(b)
    chance = first * second / (len(a) * (len(a) - 1) / 2)
    most = (first + second) / 2
    return 1.0 if most == chance else (together - chance) / (most - chance)


def clusters(truth: Truth, answer: Answer, threshold: float) -> float:
    """The adjusted Rand index against the connected components of all pairs of `threshold` or more."""
    alike = truth.jaccard >= threshold
    whole = components(len(truth.ids), truth.first[alike], truth.second[alike])
    return adjusted_rand_index(whole, answer.cluster)


def by_level(truth: Truth, answer: Answer, bands: int, rows: int) -> dict[str, dict[str, float]]:
    """Which share of the planted pairs of each level came into one cluster, beside what the bands and rows give.

    `expected`: the mean of 1 - (1 - J^rows)^bands over the pairs' exact similarities J; `least`: what an honest tool falls
    below once in a hundred times.
    """
    planted = (truth.kind[truth.first] == "near") & (truth.family[truth.first] == truth.family[truth.second])
    first, second, index = truth.first[planted], truth.second[planted], truth.jaccard[planted]
    found, level = answer.cluster[first] == answer.cluster[second], truth.level[first]
    told = {}
    for value in np.unique(level).tolist():
        at = level == value
        curve = 1 - (1 - index[at] ** rows) ** bands
        counts = np.ones(1)  # the chance of each number of found pairs
        for chance in curve.tolist():
            counts = np.convolve(counts, (1 - chance, chance))
        least = np.searchsorted(np.cumsum(counts), 0.01)
        told[f"{value:.2f}"] = {"found": float(found[at].mean()), "expected": float(curve.mean()),
                                "least": float(least / at.sum()), "pairs": int(at.sum())}
    return told


def chains_merged(truth: Truth, answer: Answer) -> float:
    """Which share of the pairs of a chain's pages that are UNLIKE is in one cluster."""
    near = (truth.kind[truth.first] == "chain") & (truth.family[truth.first] == truth.family[truth.second])
    near &= truth.jaccard >= UNLIKE
    chain = truth.kind == "chain"
    counted = couples(truth.family[chain]) - int(near.sum())
    together = couples(np.stack([truth.family[chain], answer.cluster[chain]])) - int(
        (answer.cluster[truth.first] == answer.cluster[truth.second])[near].sum())
    return share(together, counted)


def lost(truth: Truth, answer: Answer, kind: str) -> float:
    """Which share of the records of this kind was removed although no kept record is like it."""
    own = truth.kind == kind
    return share(int((~answer.kept & (best_kept(truth, answer) < UNLIKE) & own).sum()), int(own.sum()))


def best_kept(truth: Truth, answer: Answer) -> np.ndarray:
    """Of each record, the similarity to the kept record that is most like it; 0 where it is below what was counted."""
    best = np.zeros(len(truth.ids))
    for a, b in ((truth.first, truth.second), (truth.second, truth.first)):
        np.maximum.at(best, a, np.where(answer.kept[b], truth.jaccard, 0.0))
    return best


def couples(labels: np.ndarray) -> int:
    """How many pairs have equal labels; of a matrix, equal columns."""
    sizes = np.unique(labels, axis=-1, return_counts=True)[1].astype(np.int64)
    return int((sizes * (sizes - 1) // 2).sum())


def ratios(right: int, wrong: int, missed: int) -> dict[str, float]:
    return {"precision": share(right, right + wrong), "recall": share(right, right + missed),
            "f1": share(2 * right, 2 * right + wrong + missed)}


def share(part: float, whole: float) -> float:
    return float(part / whole) if whole else 1.0
