"""Backends: the table of kernels by device, memory on a device, and why a GPU can't be used."""
