"""Pooling, counts, orders and running sums."""
