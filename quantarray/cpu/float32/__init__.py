"""Products of float32 values."""
