"""Functions that create packed arrays."""
