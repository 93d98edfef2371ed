"""Files: one array in a container, and networks of plain integers."""
