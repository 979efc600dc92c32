"""Samples: decoding, resampling, channels, levels, encoding."""

STAGES: tuple[type, ...] = ()
