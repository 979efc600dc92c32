"""Texts as numbers of a vocabulary, and the files that trainers read them from."""
