"""Numba CUDA kernels: the twin of `quantarray.cpu`, file by file.

`docs/kernels/index.md` says which kernels have a twin. `costs` never chooses one that has none.
"""
