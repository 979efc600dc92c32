"""Source code: its language, signals, parse, licence and secrets."""
