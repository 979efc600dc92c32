"""Of records that are nearly alike one stays."""
