"""Packing, encoding and moving bits by ballots."""
