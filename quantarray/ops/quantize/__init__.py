"""Quantise: fit a scheme, encode in one pass, choose a scheme, allocate bits."""
