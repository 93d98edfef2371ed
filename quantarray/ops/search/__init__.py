"""Search: the rows of a packed database that are nearest to queries, by several metrics."""
