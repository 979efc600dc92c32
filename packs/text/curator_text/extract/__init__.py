"""From bytes and markup to text."""
