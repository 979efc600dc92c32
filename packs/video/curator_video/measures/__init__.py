"""Numbers about a clip that need no model."""
