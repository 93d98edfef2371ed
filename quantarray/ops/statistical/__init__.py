"""Reductions, searches, sorts and sets."""
