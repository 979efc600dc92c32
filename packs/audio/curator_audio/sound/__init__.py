"""What changes samples: rate, channels, ends, loudness, encoding; and a picture of them."""

from curator_audio.sound.encode import Encode
from curator_audio.sound.loudness import Loudness
from curator_audio.sound.mono import Mono
from curator_audio.sound.resample import Resample
from curator_audio.sound.trim import Trim
from curator_audio.sound.waveform import Waveform

STAGES: tuple[type, ...] = (Resample, Mono, Trim, Loudness, Encode, Waveform)
