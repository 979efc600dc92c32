"""What the model stages of all packs share: loading, small heads over embeddings, and a client for servers.
Extra `models`."""
