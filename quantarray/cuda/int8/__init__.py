"""Products of bytes that are not packed."""
