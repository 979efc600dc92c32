"""Of records whose embeddings point the same way one stays."""
