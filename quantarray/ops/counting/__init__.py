"""Histograms of codes, and sums, moments and extremes made of them."""
