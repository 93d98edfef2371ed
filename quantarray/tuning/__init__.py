"""`autotune`: kernels chosen by measuring."""
