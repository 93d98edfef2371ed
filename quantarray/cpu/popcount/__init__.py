"""Integer products by and-popcount: kernels, tiles, and one micro-kernel for each instruction set."""
