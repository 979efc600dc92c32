"""What became of records: of one, of those that failed, of those of two runs."""
