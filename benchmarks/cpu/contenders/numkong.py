"""NumKong: packed Hamming distances of bits, packed int8 products; rows are divided among threads as in its guide.

What makes products of distances, k - 2 d, is left out in its favour.
"""

from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version as installed

import numkong
import numpy as np

from ..cases import Product
from . import Entry, attempt


def version():
    return installed("numkong")


def entries(case, threads):
    if not isinstance(case, Product):
        return {}
    if case.bits == (1, 1):
        return {"numkong": attempt(distances, case, threads)}
    return {"numkong int8": attempt(products, case, threads)}


def split(rows, threads):
    """Split `rows` into one range (first, end) for each thread.

    >>> split(5, 2)
    [(0, 2), (2, 5)]
    """
    return [(rows * t // threads, rows * (t + 1) // threads) for t in range(threads)]


def over_rows(kernel, x, packed, out, threads):
    """Return a call that fills `out` [m n], a range of rows on each thread."""
    if threads == 1 or len(x) < threads:
        return lambda: kernel(x, packed, out=out)
    pool, parts = ThreadPoolExecutor(threads), split(len(x), threads)

    def call():
        waiting = [pool.submit(kernel, x, packed, out=out, start_row=a, end_row=b) for a, b in parts]
        for part in waiting:
            part.result()
        return out

    return call


def distances(case, threads):
    x, w = (np.packbits(case.inputs()[name] > 0, axis=1) for name in ("x", "w"))
    out = numkong.zeros((case.m, case.n), dtype="uint32")
    call = over_rows(numkong.hammings_packed, numkong.Tensor(x), numkong.hammings_pack(w, dtype="uint1"), out, threads)
    return Entry(call, lambda d: case.k - 2 * np.asarray(d).astype(np.int32))


def products(case, threads):
    x, w = (np.ascontiguousarray(case.inputs()[name]) for name in ("x", "w"))
    out = numkong.zeros((case.m, case.n), dtype="int32")
    call = over_rows(numkong.dots_packed, numkong.Tensor(x), numkong.dots_pack(w, dtype="int8"), out, threads)
    return Entry(call, np.asarray)
