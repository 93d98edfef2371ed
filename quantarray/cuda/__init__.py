"""Numba CUDA kernels: the twin of `quantarray.cpu`, file by file. A kernel without a file here has no twin yet."""
