"""Depthwise convolutions: by masked additions, by bytes, by bit-sliced counters."""
