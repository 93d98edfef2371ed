"""NumPy: its bits for packing and search, its float32 matrix product."""

import os

import numpy as np

from ..cases import Pack, Product, Search, Unpack
from . import Entry


def version():
    return np.__version__


def entries(case, threads):
    make = {Pack: pack, Unpack: unpack, Search: search, Product: product}.get(type(case))
    if make is product and max(case.bits) > 4:
        return {"numpy": "float32 cannot hold the sums"}
    if make is product and os.environ.get("OPENBLAS_NUM_THREADS", str(threads)) != str(threads):
        return {"numpy": "its BLAS keeps the number of threads that it started with"}
    return {"numpy": make(case)} if make else {}


def pack(case):
    x = case.inputs()["x"]
    call = (lambda: np.packbits(x >= 0, axis=1)) if case.real else lambda: np.packbits(x, axis=1)
    return Entry(call, lambda y: np.unpackbits(y, axis=1, count=case.length) != 0)


def unpack(case):
    x = np.packbits(case.inputs()["bits"], axis=1)
    return Entry(lambda: np.unpackbits(x, axis=1, count=case.length), np.asarray)


def search(case):
    rows, queries = case.inputs()["rows"], case.inputs()["queries"]

    def call():
        results = []
        for q in queries:
            distances = np.concatenate(
                [np.bitwise_count(rows[i : i + 4096] ^ q).sum(1, dtype=np.uint16) for i in range(0, len(rows), 4096)]
            )
            nearest = np.argpartition(distances, case.k - 1)[: case.k]
            results.append(np.sort(distances[nearest]))
        return np.stack(results)

    return Entry(call, np.asarray)


def product(case):
    x, w = (case.inputs()[name].astype(np.float32) for name in ("x", "w"))
    across = np.ascontiguousarray(w.T)
    out = x @ across
    return Entry(lambda: np.matmul(x, across, out=out), lambda y: y.astype(np.int32))
