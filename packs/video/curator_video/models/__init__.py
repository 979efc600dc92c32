"""What models say of clips."""
