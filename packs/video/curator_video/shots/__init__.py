"""Where one shot ends and the next begins; spans of clips."""

STAGES: tuple[type, ...] = ()
