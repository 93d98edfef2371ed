"""Vector helpers for micro-kernels in explicit LLVM: loads, transposes, masks, adders."""
