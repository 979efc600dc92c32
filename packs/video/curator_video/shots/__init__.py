"""Where one shot ends and the next begins; spans of clips."""
