"""Pages in the browser, by one server: over what a run wrote, and of a run while it works."""
