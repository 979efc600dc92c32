"""Numbers about a recording that need no model."""
