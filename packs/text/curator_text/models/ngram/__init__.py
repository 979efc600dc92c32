"""Language models of n-grams, as KenLM makes them: reading their files, and asking them."""
