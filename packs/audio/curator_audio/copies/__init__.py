"""What tells that two recordings are the same."""

STAGES: tuple[type, ...] = ()
