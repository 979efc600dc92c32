"""What tells that two clips are the same."""
