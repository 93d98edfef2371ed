"""Benchmarks for a machine with a GPU: the tests that need one, then times by events, compared with other libraries."""
