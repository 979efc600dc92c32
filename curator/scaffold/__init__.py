"""What a new pack and a new recipe begin with: `curator new`."""
