"""Launch kernels on a GPU: Numba's CUDA target, units of a GPU, warp primitives, graphs."""
