"""Conversations and instructions: one layout for all, checks, templates, turns."""
