"""Records in which the texts of a benchmark stand: a pack of its own, whose one stage has a bare name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from curator.stages.late import attributes

STAGES = {"decontaminate": "curator_dedup.decontaminate.decontaminate:Decontaminate"}

if TYPE_CHECKING:
    from curator_dedup.decontaminate.decontaminate import Decontaminate as Decontaminate
else:
    __getattr__, __dir__ = attributes(__name__, STAGES)
