"""Oracles: products of float32 matrices with sums in the order of kernels, rounded once for each product."""

import numpy as np

from quantarray.cpu.runtime.isa import FEATURES


def summed(x, w):
    """x [m k] @ w [k n]: a product and its sum are rounded to float32 together where the CPU has such an instruction.

    With the 64 binary digits of an extended float the sum of a product and a float32 value is next to always exact.
    """
    total = np.zeros((len(x), w.shape[1]), np.float32)
    for k in range(len(w)):
        if "fma" in FEATURES:
            exact = x[:, k, None].astype(np.longdouble) * w[k]
            total = (exact + total).astype(np.float32)
        else:
            total = total + x[:, k, None] * w[k]
    return total


def in_lanes(x, values):
    """x [m k] @ values [o k].T in 16 sums: each has every 16th product, and they are added by halves."""
    more = -x.shape[1] % 16
    left, right = (np.pad(a, ((0, 0), (0, more))) for a in (x, values))
    total = np.zeros((len(x), len(values), 16), np.float32)
    for k in range(0, left.shape[1], 16):
        a, b = left[:, None, k : k + 16], right[None, :, k : k + 16]
        total = (a.astype(np.longdouble) * b + total).astype(np.float32) if "fma" in FEATURES else total + a * b
    while total.shape[2] > 1:
        total = total[..., : total.shape[2] // 2] + total[..., total.shape[2] // 2 :]
    return total[..., 0]
