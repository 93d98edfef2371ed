"""Benchmarks: each prints a table and writes JSON; run from the root of a checkout."""
