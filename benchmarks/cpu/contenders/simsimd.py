"""SimSIMD: all pairs of Hamming distances. What makes products of them, k - 2 d, is left out in its favour."""

import numpy as np
import simsimd

from ..cases import Product
from . import Entry, attempt


def version():
    return simsimd.__version__


def entries(case, threads):
    if not isinstance(case, Product) or case.bits != (1, 1):
        return {}
    return {"simsimd": attempt(distances, case, threads)}


def distances(case, threads):
    x, w = (np.packbits(case.inputs()[name] > 0, axis=1) for name in ("x", "w"))

    def call():
        return simsimd.cdist(x, w, "hamming", dtype="bin8", threads=threads)

    return Entry(call, lambda d: case.k - 2 * np.asarray(d).round().astype(np.int32))
