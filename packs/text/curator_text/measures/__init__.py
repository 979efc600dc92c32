"""Statistics of texts, and what they are counted with: words, lines, spans."""
