"""Documents in pieces, and documents of pieces."""
