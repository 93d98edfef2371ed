"""Kernel contract: one stub a kernel, the operands they take, and windows."""
