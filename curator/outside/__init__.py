"""Curator beside other libraries: data in memory goes in and comes out, and stages work in other engines."""
