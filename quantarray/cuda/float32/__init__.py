"""Kernels of float32 values."""
