"""Random products: which operation, of which shapes, and how a NumPy oracle makes them of values."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..support import naive

WORK = 2**15  # products of a call, about; of one in 32, 16 times as many
SHARES = {"linear": 0.4, "matmul": 0.1, "einsum": 0.05, "conv2d": 0.3, "groups": 0.1, "depthwise": 0.05}
Array = np.ndarray[Any, Any]


class Call(NamedTuple):
    """A call of a product: its shapes and arguments, and how a NumPy oracle computes it from values."""

    op: str
    x: tuple[int, ...]
    w: tuple[int, ...]
    axis: int  # packed axis of w
    elements: int  # of a sum
    args: dict[str, Any]

    @property
    def outputs(self) -> int:
        return self.w[1] if self.op == "matmul" else self.w[0]

    def operands(self, x: Array, w: Array, pad: float = 0) -> tuple[Array, Array]:
        """Arrange values as [groups rows k] and [groups k outputs], whose product is the result."""
        if self.op != "conv2d":
            return x[None], (w if self.op == "matmul" else w.T)[None]
        groups, (kh, kw) = self.args["groups"], self.w[1:3]
        (sh, sw), (dh, dw), around = self.args["stride"], self.args["dilation"], (self.args["padding"],) * 2
        padded = np.pad(x, ((0, 0), around, around, (0, 0)), constant_values=pad)
        seen = np.lib.stride_tricks.sliding_window_view(padded, ((kh - 1) * dh + 1, (kw - 1) * dw + 1), (1, 2))
        seen = seen[:, ::sh, ::sw, :, ::dh, ::dw]  # [n i j c kh kw]
        n, i, j, c = seen.shape[:4]
        rows = seen.reshape(n, i, j, groups, c // groups, kh, kw).transpose(3, 0, 1, 2, 5, 6, 4)
        columns = w.reshape(groups, self.outputs // groups, -1).transpose(0, 2, 1)
        return rows.reshape(groups, n * i * j, -1), columns

    def result(self, sums: Array) -> Array:
        """Arrange sums [groups rows outputs] in the shape of the result."""
        flat = sums.transpose(1, 0, 2).reshape(sums.shape[1], self.outputs)
        if self.op != "conv2d":
            return flat
        out = [
            naive.out_size(n, k, s, self.args["padding"], self.args["padding"], d)
            for n, k, s, d in zip(self.x[1:3], self.w[1:3], self.args["stride"], self.args["dilation"], strict=True)
        ]
        return flat.reshape(-1, *out, self.outputs)

    def first(self) -> Call:
        """Return the call for the first row or image only."""
        return self._replace(x=(1, *self.x[1:]))


def draw(rng: np.random.Generator) -> Call:
    """Draw a product with a contraction of 1 to 10**6 elements, uniform in its logarithm."""
    op = str(rng.choice(list(SHARES), p=list(SHARES.values())))
    k, work = int(2 ** rng.uniform(0, np.log2(10**6))), WORK * (16 if rng.random() < 1 / 32 else 1)
    if op in ("linear", "matmul", "einsum"):
        rows, outputs = _sizes(rng, max(1, work // k), 2)
        w = (k, outputs) if op == "matmul" else (outputs, k)
        return Call(op, (rows, k), w, 0 if op == "matmul" else 1, k, {})
    return _convolution(rng, op, k, work)


def _sizes(rng: np.random.Generator, product: int, n: int) -> list[int]:
    """Draw n sizes of at most 300 whose product is at most about `product`."""
    sizes = []
    for _ in range(n):
        size = min(300, max(1, int(product ** rng.uniform(0, 1))))
        sizes.append(int(rng.integers(1, size + 1)))
        product = max(1, product // sizes[-1])
    return [int(v) for v in rng.permutation(sizes)]


def _convolution(rng: np.random.Generator, op: str, k: int, work: int) -> Call:
    height, width = (int(v) for v in rng.choice([1, 1, 2, 3, 3, 3, 5], 2))
    stride, dilation = (tuple(int(v) for v in rng.choice([1, 1, 1, 2, 3], 2)) for _ in range(2))
    padding = int(rng.choice([0, 0, 1, 1, 2]))
    spread = [(size - 1) * by + 1 for size, by in zip((height, width), dilation, strict=True)]
    c = max(1, min(k, 10**5) // (height * width))
    groups = 1
    if op == "groups":
        groups = int(rng.choice([2, 3, 4, 8]))
        c = int(rng.choice([c % 200 + 1, 1, 2, 8, 16, 32, 64]))
    if op == "depthwise":
        groups, c = min(c, 300), 1
    per_group, rows, columns = _sizes(rng, max(1, work // (height * width * c * groups)), 3)
    outputs = groups * (int(rng.integers(1, 3)) if op == "depthwise" else min(per_group, 100))
    images = int(rng.choice([1, 1, 2, 5]))
    image = [max(1, n + s - 1 - 2 * padding) for n, s in zip((min(rows, 14), min(columns, 14)), spread, strict=True)]
    image = [max(n, s - 2 * padding) for n, s in zip(image, spread, strict=True)]
    args = {"stride": stride, "dilation": dilation, "padding": padding, "groups": groups}
    axis = 0 if op == "depthwise" and rng.random() < 0.8 else 3
    shape = (images, *image, c * groups)
    return Call("conv2d", shape, (outputs, height, width, c), axis, height * width * c, args)
