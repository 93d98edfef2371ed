"""Oracle: products of float32 matrices whose sums go in order, as the kernel's do, rounded once for each product."""

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
