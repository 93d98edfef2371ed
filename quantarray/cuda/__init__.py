"""Numba CUDA kernels: the twin of `quantarray.cpu`, file by file.

All have one but `dot`, which products of bytes by a CPU's vector instructions need: `costs` never chooses it.
"""
