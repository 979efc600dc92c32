"""What a run will take, before it is run: time, bytes, memory and money, from a sample of its input."""
