"""Layers and the packed network."""
