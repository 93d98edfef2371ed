"""Integer products by and-popcount on the integer units."""
