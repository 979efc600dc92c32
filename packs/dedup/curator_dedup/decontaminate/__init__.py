"""Records in which the texts of a benchmark stand: a pack of its own, whose one stage has a bare name."""

from curator_dedup.decontaminate.decontaminate import Decontaminate

STAGES: tuple[type, ...] = (Decontaminate,)
