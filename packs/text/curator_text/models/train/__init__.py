"""Small classifiers that are trained in a run, and used in it or later."""
