"""Models of texts: what they are about, how good they are, how likely."""
