"""Questions to language models, and what becomes of their answers."""
