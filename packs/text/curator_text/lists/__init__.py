"""Stages that look addresses, words and thresholds up in lists."""
