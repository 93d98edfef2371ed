"""Depthwise convolutions by masked additions."""
