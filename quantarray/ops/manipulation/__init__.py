"""Functions that move elements: shapes, joins, indexing, takes."""
