"""What changes samples: rate, channels, encoding."""

from curator_audio.sound.loudness import Loudness
from curator_audio.sound.resample import Resample
from curator_audio.sound.trim import Trim
from curator_audio.sound.waveform import Waveform

STAGES: tuple[type, ...] = (Resample, Trim, Loudness, Waveform)
