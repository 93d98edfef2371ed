"""Vectors, codes and queries by kind, the same in each process, and the nearest rows of each query."""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

VECTORS, CLUSTERS, CODES, SETS = "vectors", "clusters", "codes", "sets"
SHAPES = {VECTORS: (100_000, 256), CLUSTERS: (100_000, 1536), SETS: (200_000, 2048)}
CODE_SHAPES = (200_000, 768), (1_000_000, 1024)
K = 10
_CENTERS = 1000
JUDGED = 100  # queries whose results are compared
_MEMBERS = 40, 61  # of a set, from .. below


class Case(NamedTuple):
    """A search: of vectors by squared distance or dot product, with codes of `bits`; of codes; or of sets."""

    kind: str
    shape: tuple[int, int]
    bits: int
    queries: int
    k: int

    @property
    def name(self):
        queries = f"{self.queries} {'query' if self.queries == 1 else 'queries'}"
        if self.kind in (VECTORS, CLUSTERS):
            return f"{self.kind}, {self.bits} bit{'s' * (self.bits > 1)}, {queries}"
        return f"{self.kind}, {self.shape[0]} x {self.shape[1]}, k = {self.k}, {queries}"


class Data(NamedTuple):
    """A pair of rows and queries, float32 of vectors, bool of codes and sets; the nearest ids of the first queries."""

    rows: Any
    queries: Any
    exact: Any


def cases():
    for queries in (1, 300):
        yield from (Case(VECTORS, SHAPES[VECTORS], bits, queries, K) for bits in (1, 2, 4, 8))
    yield from (Case(CLUSTERS, SHAPES[CLUSTERS], bits, 1000, K) for bits in (2, 4))
    yield Case(SETS, SHAPES[SETS], 1, 100, K)
    for shape in CODE_SHAPES:
        n = shape[0]
        for queries in (1, 10, 100):
            ks = (1, 10, 100, 1000, n // 2, n) if queries * n < 10**8 else (1, 10, 100, 1000)
            yield from (Case(CODES, shape, 1, queries, k) for k in ks)


@lru_cache(1)
def data(kind, shape, queries):
    rows, asked = _DRAW[kind](np.random.default_rng(0), *shape, queries)
    if kind not in (VECTORS, CLUSTERS):
        return Data(rows, asked, None)
    scores = asked[:JUDGED] @ rows.T
    if kind == VECTORS:
        scores = 2 * scores - np.square(rows).sum(axis=1)
    return Data(rows, asked, np.argpartition(scores, -K, axis=1)[:, -K:])


def recall(case, data, ids):
    """Return the share of the nearest that are among ids [queries k]; of codes and sets, of their distances."""
    if case.kind in (VECTORS, CLUSTERS):
        pairs = zip(ids, data.exact, strict=False)
        return float(np.mean([len(np.intersect1d(got, nearest)) / case.k for got, nearest in pairs]))
    query = data.queries[0]
    both = data.rows[:, query].sum(axis=1, dtype=np.int64)
    either = query.sum() + data.rows.sum(axis=1, dtype=np.int64) - both
    score = both / either if case.kind == SETS else both - either
    return float(np.mean(np.sort(score[np.asarray(ids[0], np.int64)]) == np.sort(score)[-case.k :]))


def _vectors(rng, n, d, m):
    return rng.normal(size=(n, d)).astype(np.float32), rng.normal(size=(m, d)).astype(np.float32)


def _clusters(rng, n, d, m):
    """Draw vectors around normal centers, of half their size, of length 1."""
    centers = rng.normal(size=(min(_CENTERS, n), d)).astype(np.float32)

    def around(number):
        x = centers[rng.integers(0, len(centers), number)]
        x += 0.5 * rng.standard_normal((number, d), np.float32)
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    return around(n), around(m)


def _codes(rng, n, d, m):
    return tuple(np.unpackbits(rng.integers(0, 256, (rows, d // 8), np.uint8), axis=1).view(bool) for rows in (n, m))


def _sets(rng, n, d, m):
    def sets(number):
        members = np.zeros((number, d), bool)
        sizes = rng.integers(*_MEMBERS, number)
        places = np.concatenate([rng.choice(d, size, False) for size in sizes])
        members[np.repeat(np.arange(number), sizes), places] = True
        return members

    return sets(n), sets(m)


_DRAW = {VECTORS: _vectors, CLUSTERS: _clusters, CODES: _codes, SETS: _sets}
