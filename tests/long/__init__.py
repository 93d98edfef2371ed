"""Proofs with large counts: random cases, each of which its number and a seed repeat. `python -m tests.long --help`."""
