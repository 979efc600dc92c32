"""Video stages for Curator: probing, shots, clips, motion, measures, hashes, previews, models, writing."""

from __future__ import annotations

from curator_video import clips, copies, measures, models, once, read, shots, write

STAGES: tuple[type, ...] = (
    *read.STAGES,
    *shots.STAGES,
    *once.STAGES,
    *clips.STAGES,
    *measures.STAGES,
    *copies.STAGES,
    *models.STAGES,
    *write.STAGES,
)

globals().update({stage.__name__: stage for stage in STAGES})
__all__ = ["STAGES", *(stage.__name__ for stage in STAGES)]
