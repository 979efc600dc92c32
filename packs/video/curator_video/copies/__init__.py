"""What tells that two clips are the same."""

STAGES: tuple[type, ...] = ()
