"""Convolutions, and NumPy's answer to them."""

from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from .base import Case, draw


def correlate(x, w, stride, padding):
    """Convolve as a sum over taps, in x's float dtype: exact where that dtype holds every sum."""
    margin = (padding, padding)
    x = np.pad(x, ((0, 0), margin, margin, (0, 0)))
    height, width = ((x.shape[i] - w.shape[i]) // stride + 1 for i in (1, 2))
    total = np.zeros((x.shape[0], height, width, w.shape[0]), x.dtype)
    for a in range(w.shape[1]):
        for b in range(w.shape[2]):
            seen = x[:, a : a + stride * height : stride, b : b + stride * width : stride]
            total += by_groups(seen, w[:, a, b].astype(x.dtype))
    return total


def by_groups(seen, tap):
    """Multiply `seen` [.. groups*c] and `tap` [groups*o c] group by group: [.. groups*o]."""
    groups = seen.shape[-1] // tap.shape[1]
    pixels, taps = (a.reshape(*a.shape[:axis], groups, -1, *a.shape[axis + 1 :]) for a, axis in ((seen, 3), (tap, 0)))
    products = np.einsum("nhwgc,goc->nhwgo", pixels, taps, optimize=True)
    return products.reshape(*seen.shape[:-1], len(tap))


@dataclass(frozen=True, kw_only=True)
class Conv(Case):
    """A convolution of NHWC images and OHWI weights, padded by zeros so that stride 1 keeps the size.

    `out` is "bits" (sums > 0), "int32", or "float32": the same sums, of an image that comes as float32.
    """

    batch: int
    size: int
    channels: int
    outputs: int
    kernel: int = 3
    stride: int = 1
    bits: tuple[int, int] = (1, 1)
    groups: int = 1
    out: str = "bits"

    @property
    def padding(self):
        return self.kernel // 2

    @property
    def depthwise(self):
        return self.groups == self.channels

    @property
    def shapes(self):
        """(shape of the image, shape of the weights, shape of the result)."""
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
        inputs = self.inputs()
        sums = correlate(inputs["x"].astype(np.float32), inputs["w"], self.stride, self.padding)
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
    """A convolution of ABC-Net: weights of 3 masks and images of 3 steps, 28x28x128 to 28x28x128.

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
        """factors[o] = 1 + o / 128: the scale of the weights of output channel o."""
        return 1 + np.arange(128, dtype=np.float32) / 128

    @lru_cache(1)  # noqa: B019
    def inputs(self):
        """Draw bits, with the masks or steps outermost, and return them with their float32 values."""
        rng = self.random()
        shapes = {"x": (1, 28, 28, 128), "w": (128, self.kernel, self.kernel, 128)}
        bits = {name: rng.integers(0, 2, (3, *shape), dtype=np.uint8) for name, shape in shapes.items()}
        values = {
            name: np.tensordot(np.float32(scale), 2 * bits[name].astype(np.float32) - 1, 1)
            for name, scale in (("x", self.steps), ("w", self.masks))
        }
        values["w"] *= self.factors[:, None, None, None]
        return values | {f"{name}_bits": planes for name, planes in bits.items()}

    def expected(self):
        inputs = self.inputs()
        sums = correlate(inputs["x"].astype(np.float64), inputs["w"], 1, self.padding)
        return sums.astype(np.float32) if self.out == "float32" else np.searchsorted(self.cuts, sums).astype(np.uint8)

    @property
    def products(self):
        return 9 * 28 * 28 * 128 * 128 * self.kernel**2

    @property
    def nbytes(self):
        bits = {"float32": 32, "codes": 3}[self.out]
        return 28 * 28 * 128 * bits // 8 + 3 * 128 * (28 * 28 + 128 * self.kernel**2) // 8
