"""Audio stages for Curator: decoding, measures, voice activity, utterances, transcripts, speakers, copies."""

from __future__ import annotations

from curator_audio import copies, cut, measures, models, read, sound, voices, words, write

STAGES: tuple[type, ...] = (
    *read.STAGES,
    *sound.STAGES,
    *measures.STAGES,
    *cut.STAGES,
    *words.STAGES,
    *voices.STAGES,
    *models.STAGES,
    *copies.STAGES,
    *write.STAGES,
)

globals().update({stage.__name__: stage for stage in STAGES})
__all__ = ["STAGES", *(stage.__name__ for stage in STAGES)]
