"""Stages that decide how much of what a data set holds: scores to bins, repeats, mixtures, order."""
