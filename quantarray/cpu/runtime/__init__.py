"""Compile kernels and run them on threads: decorators, instruction set, scheduling, thread pool, aligned buffers."""
