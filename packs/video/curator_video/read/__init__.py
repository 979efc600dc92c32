"""Films: found, opened, looked over without decoding, decoded once."""

STAGES: tuple[type, ...] = ()
