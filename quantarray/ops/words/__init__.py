"""Codes, levels and words of arrays, which the chapters of functions share."""
