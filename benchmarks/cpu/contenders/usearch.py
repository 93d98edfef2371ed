"""usearch: exact search of binary codes, without an index."""

import numpy as np
import usearch
from usearch.index import MetricKind, search

from ..cases import Search
from . import Entry


def version():
    return usearch.__version__


def entries(case, threads):
    return {"usearch": exact(case, threads)} if isinstance(case, Search) else {}


def exact(case, threads):
    rows, queries = (case.inputs()[name].view(np.uint8) for name in ("rows", "queries"))

    def call():
        return search(rows, queries, case.k, MetricKind.Hamming, exact=True, threads=threads).distances

    return Entry(call, lambda d: d.astype(np.int32))
