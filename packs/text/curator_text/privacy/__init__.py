"""Personal data and secrets in texts."""
