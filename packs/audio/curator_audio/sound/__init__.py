"""What changes samples: rate, channels, encoding."""

from curator_audio.sound.resample import Resample

STAGES: tuple[type, ...] = (Resample,)
