"""What is measured: inputs from a seed, the output that is right, and how much work the output needs at least."""

import zlib
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path

import numpy as np

NETWORKS = Path(__file__).resolve().parents[3] / "shared" / "networks"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row of a table.

    `inputs()` is a dict of arrays, the same in every process; `expected()` what each contender's output must be
    once it is read as NumPy; `products` the products of two bits that the output is a sum of; `nbytes` the bytes that
    must be read or written at least. `threads` overrides the command's.
    """

    name: str
    threads: int | None = None

    def random(self):
        return np.random.default_rng(zlib.crc32(self.name.encode()))


def draw(rng, bits, shape):
    """Values of an element, int8: -1 or 1, or two's complement of more bits."""
    if bits == 1:
        return rng.choice(np.array([-1, 1], np.int8), shape)
    return rng.integers(-(1 << bits - 1), 1 << bits - 1, shape, np.int8)


def levels(bits):
    """All values that `draw` gives.

    >>> list(levels(1)), list(levels(2))
    ([-1, 1], [-2, -1, 0, 1])
    """
    return range(-1, 2, 2) if bits == 1 else range(-(1 << bits - 1), 1 << bits - 1)


def correlate(x, w, stride, padding):
    """The convolution as a sum over taps, in x's float dtype: exact where that holds every sum."""
    margin = (padding, padding)
    x = np.pad(x, ((0, 0), margin, margin, (0, 0)))
    height, width = ((x.shape[i] - w.shape[i]) // stride + 1 for i in (1, 2))
    total = np.zeros((x.shape[0], height, width, w.shape[0]), x.dtype)
    for a in range(w.shape[1]):
        for b in range(w.shape[2]):
            seen = x[:, a : a + stride * height : stride, b : b + stride * width : stride]
            tap = w[:, a, b].astype(x.dtype)
            total += seen @ tap.T if w.shape[3] == x.shape[3] else seen * tap[:, 0]
    return total


@dataclass(frozen=True, kw_only=True)
class Conv(Case):
    """NHWC images and OHWI weights, padded by zeros so that stride 1 keeps the size.

    `out` is "bits" (sums > 0), "int32", or "float32": the same sums, of an image that comes as float32.
    """

    batch: int
    size: int
    channels: int
    outputs: int
    kernel: int = 3
    stride: int = 1
    bits: tuple[int, int] = (1, 1)
    depthwise: bool = False
    out: str = "bits"

    @property
    def padding(self):
        return self.kernel // 2

    @property
    def groups(self):
        return self.channels if self.depthwise else 1

    @property
    def shapes(self):
        """Of image, weights and result."""
        after = (self.size + 2 * self.padding - self.kernel) // self.stride + 1
        return (
            (self.batch, self.size, self.size, self.channels),
            (self.outputs, self.kernel, self.kernel, self.channels // self.groups),
            (self.batch, after, after, self.outputs),
        )

    @lru_cache(1)  # noqa: B019
    def inputs(self):
        rng, (x, w, _) = self.random(), self.shapes
        return {"x": draw(rng, self.bits[0], x), "w": draw(rng, self.bits[1], w)}

    def expected(self):
        given = self.inputs()
        sums = correlate(given["x"].astype(np.float32), given["w"], self.stride, self.padding)
        return sums > 0 if self.out == "bits" else sums.astype(self.out)

    @property
    def products(self):
        _, (_, *window), after = self.shapes
        return prod(self.bits) * prod(window) * prod(after)

    @property
    def nbytes(self):
        x, w, y = map(prod, self.shapes)
        before = 32 if self.out == "float32" else self.bits[0]
        return (x * before + w * self.bits[1] + y * (1 if self.out == "bits" else 32)) // 8


@dataclass(frozen=True, kw_only=True)
class Bases(Case):
    """ABC-Net: weights of 3 masks and images of 3 steps, 28x28x128 to as many.

    `out` is "float32", or "codes": how many of 7 cuts a sum passes.
    """

    kernel: int
    out: str = "float32"
    steps = (0.5, 0.7, 0.4)
    masks = (0.8, 0.3, 0.2)
    stride = 1
    groups = 1
    cuts = tuple(range(-30, 31, 10))

    @property
    def padding(self):
        return self.kernel // 2

    @property
    def factors(self):
        """Of the output channels' weights."""
        return 1 + np.arange(128, dtype=np.float32) / 128

    @lru_cache(1)  # noqa: B019
    def inputs(self):
        """Bits of the masks, outermost, and the float32 values that they stand for."""
        rng = self.random()
        shapes = {"x": (1, 28, 28, 128), "w": (128, self.kernel, self.kernel, 128)}
        bits = {name: rng.integers(0, 2, (3, *shape), dtype=np.uint8) for name, shape in shapes.items()}
        values = {
            name: np.tensordot(np.float32(scale), 2 * bits[name].astype(np.float32) - 1, 1)
            for name, scale in (("x", self.steps), ("w", self.masks))
        }
        values["w"] *= self.factors[:, None, None, None]
        return values | {f"{name}_bits": found for name, found in bits.items()}

    def expected(self):
        given = self.inputs()
        sums = correlate(given["x"].astype(np.float64), given["w"], 1, self.padding)
        return sums.astype(np.float32) if self.out == "float32" else np.searchsorted(self.cuts, sums).astype(np.uint8)

    @property
    def products(self):
        return 9 * 28 * 28 * 128 * 128 * self.kernel**2

    @property
    def nbytes(self):
        bits = {"float32": 32, "codes": 3}[self.out]
        return 28 * 28 * 128 * bits // 8 + 3 * 128 * (28 * 28 + 128 * self.kernel**2) // 8


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
        given = self.inputs()
        kind = np.float32 if sum(self.bits) < 14 and self.bits[0] * self.bits[1] < 9 else np.float64
        return (given["x"].astype(kind) @ given["w"].astype(kind).T).astype(np.int32)

    @property
    def products(self):
        return prod(self.bits) * self.m * self.k * self.n

    @property
    def nbytes(self):
        return (self.m * self.k * self.bits[0] + self.n * self.k * self.bits[1]) // 8 + 4 * self.m * self.n


@dataclass(frozen=True, kw_only=True)
class Pack(Case):
    """Rows of values to rows of bits: `source` is float32 (x >= 0), uint8 or bool (x is not 0)."""

    source: str
    rows: int = 4096
    length: int = 4096
    products = 0

    @lru_cache(1)  # noqa: B019
    def inputs(self):
        bits = self.random().integers(0, 2, (self.rows, self.length), dtype=np.uint8)
        return {"x": 2 * bits.astype(np.float32) - 1 if self.source == "float32" else bits.astype(self.source)}

    def expected(self):
        x = self.inputs()["x"]
        return x >= 0 if self.source == "float32" else x != 0

    @property
    def nbytes(self):
        return self.rows * self.length * np.dtype(self.source).itemsize + self.rows * self.length // 8


@dataclass(frozen=True, kw_only=True)
class Unpack(Case):
    """Rows of bits to a uint8 each."""

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
    """Distances of the nearest rows by Hamming distance, nearest first; which of equals is found is left open."""

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
        given = self.inputs()
        found = [np.bitwise_count(given["rows"] ^ q).sum(1, dtype=np.int32) for q in given["queries"]]
        return np.stack([np.sort(np.partition(d, self.k - 1)[: self.k]) for d in found])

    @property
    def products(self):
        return self.rows * self.queries * self.length

    @property
    def nbytes(self):
        return (self.rows + self.queries) * self.length // 8


@dataclass(frozen=True, kw_only=True)
class Network(Case):
    """A trained network on the inputs in its file; what it must give is in the file too."""

    file: str

    @property
    def path(self):
        return NETWORKS / f"{self.file}.npz"

    @lru_cache(1)  # noqa: B019
    def plain(self):
        from quantarray.io.plain import read_plain

        return read_plain(self.path)

    def inputs(self):
        return {"x": self.plain().input}

    def expected(self):
        return self.plain().expected

    @lru_cache(1)  # noqa: B019
    def _work(self):
        """(products, bytes) of all layers, from what each of them made."""
        from quantarray.nn import load_network

        network = load_network(self.path)
        x = network.encode_input(self.inputs()["x"])
        products, bits, nbytes = 0, getattr(x, "bits", 8), x.nbytes
        for layer, record in zip(network.layers, network.layers.trace(x), strict=True):
            weight = getattr(layer, "weight", None)
            if weight is not None:
                products += bits * weight.bits * prod(weight.shape[1:]) * prod(record.shape)
            bits, nbytes = record.bits, nbytes + record.nbytes + record.weight_nbytes
        return products, nbytes

    @property
    def products(self):
        return self._work()[0]

    @property
    def nbytes(self):
        return self._work()[1]
