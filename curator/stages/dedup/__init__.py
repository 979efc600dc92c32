"""Stages that find records which are there already."""
