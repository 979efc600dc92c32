"""Where speech is, and utterances cut out of long recordings."""
