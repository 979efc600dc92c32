"""A pipeline tried on a sample: what the whole will take, and where a stage spends its time."""
