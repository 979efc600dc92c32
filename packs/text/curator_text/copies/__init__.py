"""What copies are found by."""
