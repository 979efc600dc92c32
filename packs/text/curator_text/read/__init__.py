"""Readers: web archives, and text files."""
