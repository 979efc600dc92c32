"""Films: found, opened, looked over without decoding, decoded once."""
