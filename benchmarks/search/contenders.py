"""Contenders: libraries, the kinds of cases that they take, and how they make a call of a case.

version(setup)              the library's version; ImportError if it is not installed
ready(case, data, setup)    a call, and a function of its result that returns ids [queries k]; None for another case
"""

from collections.abc import Callable
from importlib.metadata import version as installed
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

import quantarray as qa

from ..cpu.contenders import OURS
from .cases import CLUSTERS, CODES, SETS, VECTORS

CANDIDATES = 100
_PLANES = {2: 1, 4: 2, 8: 3}  # of the bits of a row, by which candidates are found


class Setup(NamedTuple):
    """A number of threads."""

    threads: int


class Contender(NamedTuple):
    """A library, or a mode of one, with its kinds of cases."""

    version: Callable[[Setup], str]
    kinds: tuple[str, ...]
    ready: Callable[..., Any]


def _ours(candidates=False):
    def ready(case, data, setup):
        if candidates and case.bits not in _PLANES:
            return None
        qa.set_num_threads(setup.threads)
        some = {}
        if candidates:
            some = {"candidates": CANDIDATES}
            if case.kind == VECTORS:
                some["planes"] = _PLANES[case.bits]
        if case.kind in (CODES, SETS):
            rows, queries = qa.pack_bits(data.rows), qa.pack_bits(data.queries)
            metric = "jaccard" if case.kind == SETS else "hamming"
            return lambda: qa.top_k(queries, rows, case.k, metric), attrgetter("indices")
        if case.kind == VECTORS:
            rows, metric = qa.RaBitQ(case.bits, center=data.rows.mean(axis=0)).quantize(data.rows), "l2"
        else:
            rows, metric = qa.quantize(data.rows, qa.Uniform(case.bits, midrise=True, mse=True), scale_axis=0), "dot"
        settings = {"quantize_queries": "row", **some}
        return lambda: qa.top_k(data.queries, rows, case.k, metric, **settings), attrgetter("indices")

    return ready


def _rabitqlib_version(setup):
    import rabitqlib  # noqa: F401

    return installed("rabitqlib")


def _rabitqlib(accurate):
    """Search an index of one cluster, whose center is the mean."""

    def ready(case, data, setup):
        import rabitqlib

        index = rabitqlib.IvfIndex(case.shape[1], case.shape[0], 1, case.bits, "l2")
        index.build(data.rows, data.rows.mean(axis=0, keepdims=True), np.zeros(case.shape[0], np.uint32), 2)
        settings = {"high_accuracy": accurate, "num_threads": setup.threads}
        return lambda: index.search(data.queries, case.k, 1, **settings), lambda result: _ids(result, case)

    return ready


def _ids(result, case):
    """Return the one of two arrays that has ids; rabitqlib returns both of them."""
    return next(a for a in result if np.asarray(a).dtype.kind in "iu").reshape(case.queries, -1)


def _turbovec_version(setup):
    import turbovec  # noqa: F401

    return installed("turbovec")


def _turbovec(case, data, setup):
    import turbovec

    index = turbovec.TurboQuantIndex(case.shape[1], case.bits)
    index.calibrate(np.ascontiguousarray(data.rows[:: max(1, len(data.rows) // 1024)]))
    index.add(data.rows)
    index.prepare()
    return lambda: index.search(data.queries, case.k), lambda result: np.asarray(_ids(result, case))


def _faiss_version(setup):
    import faiss

    return faiss.__version__


def _faiss(case, data, setup):
    import faiss

    faiss.omp_set_num_threads(setup.threads)
    index = faiss.IndexBinaryFlat(case.shape[1])
    index.add(np.packbits(data.rows, axis=1))
    queries = np.packbits(data.queries, axis=1)
    return lambda: index.search(queries, case.k)[1], lambda ids: ids


def _usearch_version(setup):
    return installed("usearch")


def _usearch(case, data, setup):
    """Search all rows by the library's function without an index."""
    from usearch.index import MetricKind, search

    rows, queries = np.packbits(data.rows, axis=1), np.packbits(data.queries, axis=1)
    settings = {"exact": True, "threads": setup.threads}
    return lambda: search(rows, queries, case.k, MetricKind.Hamming, **settings), lambda result: np.reshape(
        result.keys, (case.queries, -1)
    )


def _rdkit_version(setup):
    import rdkit

    return rdkit.__version__


def _rdkit(case, data, setup):
    """Compare by BulkTanimotoSimilarity, which has one thread; the k best are not looked for."""
    from rdkit.DataStructs import BulkTanimotoSimilarity, CreateFromBitString

    def vectors(sets):
        return [CreateFromBitString("".join(map(str, row))) for row in sets.astype(np.uint8)]

    rows, queries = vectors(data.rows), vectors(data.queries)
    return lambda: [BulkTanimotoSimilarity(query, rows) for query in queries], lambda scores: [
        np.argsort(scores[0], kind="stable")[-case.k :]
    ]


CONTENDERS = {
    OURS: Contender(lambda setup: qa.__version__, (VECTORS, CLUSTERS, SETS, CODES), _ours()),
    f"{CANDIDATES} candidates": Contender(lambda setup: qa.__version__, (VECTORS, CLUSTERS), _ours(True)),
    "rabitqlib": Contender(_rabitqlib_version, (VECTORS,), _rabitqlib(False)),
    "rabitqlib accurate": Contender(_rabitqlib_version, (VECTORS,), _rabitqlib(True)),
    "turbovec": Contender(_turbovec_version, (CLUSTERS,), _turbovec),
    "faiss": Contender(_faiss_version, (CODES,), _faiss),
    "usearch": Contender(_usearch_version, (CODES,), _usearch),
    "rdkit": Contender(_rdkit_version, (SETS,), _rdkit),
}
