"""Elementwise functions: arithmetic, comparisons, logic, any function of the levels."""
