"""What changes samples: rate, channels, ends, loudness, encoding; and a picture of them."""
