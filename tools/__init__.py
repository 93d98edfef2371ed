"""Generators of pages and tables for the documentation; none is shipped with the package."""
