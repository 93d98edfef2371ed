"""Numba CUDA kernels: the twin of `quantarray.cpu`, file by file.

All have one but `dot` and `rescale`, products of bytes by a CPU's vector instructions: `costs` never chooses them.
"""
