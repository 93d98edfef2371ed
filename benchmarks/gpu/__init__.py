"""One command for a machine with a GPU: its tests, then times by events against what else runs there."""
