"""Stages that change a text."""
