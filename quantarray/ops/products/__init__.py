"""Convolutions, matrix products, pooling and search."""
