"""Texts as words and n-grams of words and characters, hashed: what several packs compare texts by."""
