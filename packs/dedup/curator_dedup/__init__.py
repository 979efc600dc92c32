"""Stages that find what is there already: equal and similar records, repeated passages, the texts of
benchmarks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from curator.stages.late import attributes
from curator_dedup import decontaminate

# Each by its name, as `module:Class`: who asks for one imports that module alone.
STAGES = {
    "dedup.exact": "curator_dedup.exact.exact:DedupExact",
    "dedup.near": "curator_dedup.near.near:DedupNear",
    "dedup.semantic": "curator_dedup.semantic.semantic:DedupSemantic",
    "dedup.lines": "curator_dedup.passages.lines:DedupLines",
    "dedup.substring": "curator_dedup.passages.substring:DedupSubstring",
}

if TYPE_CHECKING:
    from curator_dedup.decontaminate import Decontaminate as Decontaminate
    from curator_dedup.exact.exact import DedupExact as DedupExact
    from curator_dedup.near.near import DedupNear as DedupNear
    from curator_dedup.passages.lines import DedupLines as DedupLines
    from curator_dedup.passages.substring import DedupSubstring as DedupSubstring
    from curator_dedup.semantic.semantic import DedupSemantic as DedupSemantic
else:
    __getattr__, __dir__ = attributes(__name__, STAGES | decontaminate.STAGES)
