"""Hamming distances and the nearest rows."""
