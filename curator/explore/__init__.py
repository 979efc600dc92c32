"""A page in the browser over what a run wrote: scores, thresholds and records, to decide by looking."""
