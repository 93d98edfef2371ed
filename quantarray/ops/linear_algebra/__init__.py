"""Contractions over any axes, and einsum."""
