"""Packing, encoding and moving bits."""
