"""Numba CUDA kernels: the twin of `quantarray.cpu`, file by file. Empty until they are written."""
