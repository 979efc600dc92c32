"""Stages that find what is there already: equal and similar records, repeated passages, the texts of
benchmarks."""

from curator_dedup.decontaminate import Decontaminate
from curator_dedup.exact.exact import DedupExact
from curator_dedup.near.near import DedupNear
from curator_dedup.passages.lines import DedupLines
from curator_dedup.passages.substring import DedupSubstring
from curator_dedup.semantic.semantic import DedupSemantic

__all__ = ["STAGES", "Decontaminate", "DedupExact", "DedupLines", "DedupNear", "DedupSemantic",
           "DedupSubstring"]

STAGES: tuple[type, ...] = (DedupExact, DedupNear, DedupSemantic, DedupLines, DedupSubstring)
