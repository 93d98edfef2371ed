"""faiss: exact search of binary codes by `IndexBinaryFlat`."""

import faiss
import numpy as np

from ..cases import Search
from . import Entry


def version():
    return faiss.__version__


def entries(case, threads):
    faiss.omp_set_num_threads(threads)
    return {"faiss": search(case)} if isinstance(case, Search) else {}


def search(case):
    rows, queries = (case.inputs()[name].view(np.uint8) for name in ("rows", "queries"))
    index = faiss.IndexBinaryFlat(case.length)
    index.add(rows)
    return Entry(lambda: index.search(queries, case.k)[0], np.asarray)
