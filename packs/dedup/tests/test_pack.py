"""The deduplication pack, whole: its stages keep the rules that strangers' keep."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
from curator_dedup import Decontaminate, DedupExact, DedupLines, DedupNear, DedupSemantic, DedupSubstring

from curator.api.tasks import TextBatch
from curator.registry import packs
from curator.testing import check_pack

WORDS = ["one", "river", "runs", "past", "seven", "old", "mills", "before", "it", "meets", "the", "sea", "at", "last"]
TEXTS = ["a line that stands here\nand another", "a line that stands here", "", None, "a line that stands here\nand another",
         " ".join(WORDS), f"so {' '.join(WORDS)} again", "A line that stands here"]
ROWS = {"text": TEXTS, "lang": ["en", "de", None, "fr"] * 2, "n": [*range(7), None],
        "quality": [1.0, 3.0, 2.0, 3.0, None, 0.5, 2.5, 3.0]}


def batch(**columns):
    rows = len(next(iter(columns.values())))
    return TextBatch(pa.table({"id": [f"r{n}" for n in range(rows)], "source": ["s"] * rows, **columns}))


def signed():
    """Records with MinHash signatures: two alike, two the same, one alone, one without."""
    signatures = np.random.default_rng(1).integers(0, 1 << 32, (6, 64), dtype=np.uint32)
    signatures[1, 5:] = signatures[0, 5:]
    signatures[3] = signatures[2]
    lists = pa.array([*signatures[:5].tolist(), None], pa.list_(pa.uint32(), 64))
    return batch(minhash=lists, text=TEXTS[:6], quality=ROWS["quality"][:6], lang=["en", "en", "de", "en", "de", None])


def embedded():
    """Records with embeddings: two near each other, others, a null and a vector of zeros."""
    vectors = np.random.default_rng(2).normal(size=(6, 16)).astype(np.float32)
    vectors[1] = vectors[0] * 1.01
    vectors[5] = 0
    return batch(embedding=pa.array([*vectors.tolist(), None], pa.list_(pa.float32())))


def dedups():
    rows = batch(**ROWS)
    yield from ((DedupExact(**options), rows) for options in (
        {}, {"column": ["text", "lang"]}, {"normalize": True, "scope": "lang"}, {"mode": "cluster", "keep": "longest"}))
    yield from ((DedupNear(**options), signed()) for options in (
        {}, {"keep": {"by": "quality"}}, {"mode": "stream"}, {"scope": "lang", "radius": None}))
    yield from ((DedupSemantic(**options), embedded()) for options in ({}, {"method": "neighbours"}))
    yield from ((DedupLines(**options), rows) for options in ({"min_chars": 1}, {"mode": "stream", "copies": 2}))
    yield DedupSubstring(tokens=5), rows


def test_the_pack():
    check_pack("dedup", list(dedups()))


def test_decontaminate_is_a_pack_of_its_own(tmp_path):
    (tmp_path / "river.jsonl").write_text(json.dumps({"question": " ".join(WORDS), "answer": "mills"}))
    rows = batch(**ROWS)
    check_pack("decontaminate", [(Decontaminate(references=str(tmp_path), action=action), rows) for action in ("drop", "mark")])


def test_the_names_that_recipes_use():
    named = {"dedup.exact": DedupExact, "dedup.near": DedupNear, "dedup.semantic": DedupSemantic, "dedup.lines": DedupLines,
             "dedup.substring": DedupSubstring, "decontaminate": Decontaminate}
    for name, made in named.items():
        assert packs.stage_class(name) is made
        assert packs.name_of(made(**({"references": "x"} if made is Decontaminate else {}))) == name == made.name
