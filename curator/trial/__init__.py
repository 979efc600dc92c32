"""A pipeline before its run: its plan in words, a few records or a sample tried, what the whole will take,
and where a stage spends its time."""
