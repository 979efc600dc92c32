"""Tables with versions: Lance and Iceberg."""
