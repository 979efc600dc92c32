"""Of equal records one stays."""
