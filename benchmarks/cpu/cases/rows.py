"""Work on rows: products, packing, search."""

from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from .base import Case, draw


@dataclass(frozen=True, kw_only=True)
class Product(Case):
    """x [m k] times w [n k] transposed, int32 out; an x of 8 bits by 1 comes as int8, like an image."""

    m: int
    k: int
    n: int
    bits: tuple[int, int] = (1, 1)

    @lru_cache(1)  # noqa: B019
    def inputs(self):
        rng = self.random()
        return {"x": draw(rng, self.bits[0], (self.m, self.k)), "w": draw(rng, self.bits[1], (self.n, self.k))}

    def expected(self):
        inputs = self.inputs()
        kind = np.float32 if sum(self.bits) < 14 and self.bits[0] * self.bits[1] < 9 else np.float64
        return (inputs["x"].astype(kind) @ inputs["w"].astype(kind).T).astype(np.int32)

    @property
    def products(self):
        return prod(self.bits) * self.m * self.k * self.n

    @property
    def nbytes(self):
        return (self.m * self.k * self.bits[0] + self.n * self.k * self.bits[1]) // 8 + 4 * self.m * self.n


@dataclass(frozen=True, kw_only=True)
class Pack(Case):
    """A packing of rows of values into bits: x >= 0 for float32 and float16, x != 0 for uint8 and bool (`source`)."""

    source: str
    rows: int = 4096
    length: int = 4096
    products = 0

    @lru_cache(1)  # noqa: B019
    def inputs(self):
        bits = self.random().integers(0, 2, (self.rows, self.length), dtype=np.uint8)
        x = bits.astype(self.source)
        return {"x": 2 * x - 1 if self.real else x}

    def expected(self):
        x = self.inputs()["x"]
        return x >= 0 if self.real else x != 0

    @property
    def real(self):
        return np.dtype(self.source).kind == "f"

    @property
    def nbytes(self):
        return self.rows * self.length * np.dtype(self.source).itemsize + self.rows * self.length // 8


@dataclass(frozen=True, kw_only=True)
class Unpack(Case):
    """An unpacking of rows of bits, to one uint8 a bit."""

    rows: int = 4096
    length: int = 4096
    products = 0

    @lru_cache(1)  # noqa: B019
    def inputs(self):
        return {"bits": self.random().integers(0, 2, (self.rows, self.length), dtype=np.uint8)}

    def expected(self):
        return self.inputs()["bits"]

    @property
    def nbytes(self):
        return self.rows * self.length * 9 // 8


@dataclass(frozen=True, kw_only=True)
class Search(Case):
    """A search for the k rows of the least Hamming distance: the output has the distances, in ascending order.

    Row numbers are not compared, since rows of equal distance may come in any order.
    """

    rows: int = 1_000_000
    length: int = 1024
    queries: int = 10
    k: int = 10

    @lru_cache(1)  # noqa: B019
    def inputs(self):
        rng, words = self.random(), self.length // 64
        rows, queries = (rng.integers(0, 1 << 64, (n, words), np.uint64) for n in (self.rows, self.queries))
        return {"rows": rows, "queries": queries}

    def expected(self):
        inputs = self.inputs()
        distances = [np.bitwise_count(inputs["rows"] ^ q).sum(1, dtype=np.int32) for q in inputs["queries"]]
        return np.stack([np.sort(np.partition(d, self.k - 1)[: self.k]) for d in distances])

    @property
    def products(self):
        return self.rows * self.queries * self.length

    @property
    def nbytes(self):
        return (self.rows + self.queries) * self.length // 8
