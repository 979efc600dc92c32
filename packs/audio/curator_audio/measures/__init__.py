"""Numbers about a recording that need no model."""

from curator_audio.measures.signals import Signals

STAGES: tuple[type, ...] = (Signals,)
