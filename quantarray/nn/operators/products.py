"""Matrix products, convolutions of any number of axes, and batch norm."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np

from ...backends.registry import contiguous, device_of, empty
from ...core.dtypes import Array
from ...ops.products import dense_product
from ...ops.products.dense_product import ScaledBytes
from .record import Attributes, Constants, Operands, Operator, Shapes, Step, array, named, of_first, sign
from .windows import Windows, grid, tap

_AXES = 3  # of an image that the kernel of float products takes


def _summing(x: Array, y: Array) -> tuple[Array, Array]:
    """Convert two integer arrays to int64, in which their sums are exact; return floats as they are."""
    return (x, y) if x.dtype.kind == "f" else (x.astype(np.int64), y.astype(np.int64))


def matmul(a: Attributes, x: Array, y: Array | ScaledBytes) -> Array:
    """x @ y; of integers in int64, rounded to the attribute `to`."""
    if isinstance(y, ScaledBytes):
        if x.ndim != 2 or not dense_product.takes(len(x), x, y):
            return matmul(a, x, y.values)
        product_of = dense_product.matrix_product(x, y)
    elif x.ndim == y.ndim == 2 and dense_product.takes(len(x), x, y) and y.flags.c_contiguous:
        product_of = dense_product.matrix_product(x, y)
    else:
        wide, other = _summing(x, y)
        product_of = np.matmul(contiguous(wide), other)  # a BLAS sums floats by their order in memory
    return array(product_of).astype(a.get("to", x.dtype), copy=False)


def conv(a: Attributes, x: Array, w: Array, bias: Array | None = None) -> Array:
    """Convolve x [n c ..] with w [o c/groups ..]; integers are summed in int64.

    The result is stored with its channels first or last.
    """
    groups = a.get("group", 1)
    if x.shape[1] != w.shape[1] * groups or len(w) % groups or (bias is not None and bias.shape != (len(w),)):
        got = "no bias" if bias is None else f"a bias {bias.shape}"
        raise ValueError(f"Conv: x {x.shape}, w {w.shape} and {got} do not go together in {groups} groups")
    windows = grid(a, x.shape[2:], w.shape[2:])
    pixels = len(x) * math.prod(windows.output)
    floats = (x, w) if bias is None else (x, w, bias)
    if w.ndim <= _AXES + 2 and dense_product.takes(pixels, *floats):
        before = [first for first, _ in windows.pads]
        y = dense_product.convolved(x, w, windows.strides, windows.dilations, before, windows.output, bias)
        return y.astype(a.get("to", x.dtype), copy=False)
    return _convolved_by_image(x, w, bias, windows, groups).astype(a.get("to", x.dtype), copy=False)


def laid_out(w: Array) -> Array:
    """Return the weights of a convolution in the order in memory in which `conv` reads them without a copy."""
    return dense_product.in_order(w) if w.dtype == np.float32 else w


def _convolved_by_image(x: Array, w: Array, bias: Array | None, windows: Windows, groups: int) -> Array:
    """Convolve by a matrix product for each image."""
    wide, weights = _summing(x, w)
    wide = contiguous(_padded(wide, windows))
    n, o, places = len(x), len(w), windows.output
    parts = wide.reshape(n, groups, x.shape[1] // groups, *wide.shape[2:])
    kernels = np.moveaxis(weights.reshape(groups, o // groups, *w.shape[1:]), 2, -1)  # channels last, as columns are
    total = empty(device_of(x), (n, groups, o // groups, math.prod(places)), wide.dtype)
    taps = list(product(*(range(k) for k in windows.kernel)))
    for image, sums in zip(parts, total, strict=True):
        columns = [tap(image, windows, at, 2).reshape(groups, x.shape[1] // groups, -1) for at in taps]
        np.matmul(kernels.reshape(groups, o // groups, -1), np.concatenate(columns, axis=1), out=sums)
    y = total.reshape(n, o, *places)
    return y if bias is None else y + bias.astype(y.dtype).reshape(1, o, *(1,) * len(places))


def _padded(x: Array, windows: Windows) -> Array:
    return np.pad(x, [(0, 0), (0, 0), *windows.pads]) if any(map(any, windows.pads)) else x


def _gemm(a: Attributes, x: Array, y: Array, c: Array | None = None) -> Array:
    product_of = matmul({}, x.T if a.get("transA") else x, y.T if a.get("transB") else y)
    kind = x.dtype.type
    out = product_of if a.get("alpha", 1.0) == 1 else product_of * kind(a["alpha"])
    if c is not None:
        out = out + (c if a.get("beta", 1.0) == 1 else c * kind(a["beta"]))
    return array(out.astype(x.dtype))


def _batch_norm(a: Attributes, x: Array, gamma: Array, beta: Array, mean: Array, var: Array) -> Array:
    shape = (1, -1, *(1,) * (x.ndim - 2))
    g, b, m, v = (t.reshape(shape) for t in (gamma, beta, mean, var))
    deviation = np.sqrt(v + v.dtype.type(a.get("epsilon", 1e-5)))
    return array((g * (x - m) / deviation + b).astype(x.dtype))


def matmul_shape(a: Attributes, shapes: Shapes, constants: Constants) -> Shapes:
    """Return the shape of a matrix product; raise ValueError if inner lengths differ."""
    x, y = shapes[0], shapes[1]
    if not x or not y:
        raise ValueError("a scalar has no matrix product")
    left, right = (1, *x) if len(x) == 1 else x, (*y, 1) if len(y) == 1 else y
    if left[-1] != right[-2]:
        raise ValueError(f"{x} @ {y} have different inner lengths")
    out = (*np.broadcast_shapes(left[:-2], right[:-2]), left[-2], right[-1])
    out = out[:-2] + out[-1:] if len(x) == 1 else out
    return [out[:-1] if len(y) == 1 else out]


def conv_shape(a: Attributes, shapes: Shapes, constants: Constants) -> Shapes:
    """Return the shape of a convolution's result; raise ValueError if its operands do not go together."""
    x, w, groups = shapes[0], shapes[1], a.get("group", 1)
    if len(x) < 3 or len(w) != len(x):
        raise ValueError(f"x {x} and w {w} must have as many axes, at least 3")
    if groups < 1 or x[1] != w[1] * groups or w[0] % groups:
        raise ValueError(f"x {x} and w {w} do not go together in {groups} groups")
    if len(shapes) > 2 and shapes[2] is not None and shapes[2] != (w[0],):
        raise ValueError(f"the bias {shapes[2]} must be one for each of {w[0]} channels")
    return [(x[0], w[0], *grid(a, x[2:], w[2:]).output)]


def _gemm_shape(a: Attributes, shapes: Shapes, constants: Constants) -> Shapes:
    x, y = shapes[0], shapes[1]
    if len(x) != 2 or len(y) != 2:
        raise ValueError(f"{x} and {y} must be matrices")
    x, y = x[::-1] if a.get("transA") else x, y[::-1] if a.get("transB") else y
    out = matmul_shape(a, [x, y], [])[0]
    if len(shapes) > 2 and shapes[2] is not None and np.broadcast_shapes(shapes[2], out) != out:
        raise ValueError(f"c {shapes[2]} must broadcast to {out}")
    return [out]


def _norm_shape(a: Attributes, shapes: Shapes, constants: Constants) -> Shapes:
    x = shapes[0]
    if len(x) < 2 or any(s != (x[1],) for s in shapes[1:5]):
        raise ValueError(f"gamma, beta, mean and var {shapes[1:5]} must be one for each channel of {x}")
    return [x]


def _norm_direction(a: Attributes, operands: Operands) -> Array | None:
    gamma, _, _, var = (k for k in operands if k is not None)
    finite = all(np.isfinite(k).all() for k in operands if k is not None)
    ok = finite and (var + a.get("epsilon", 1e-5) > 0).all()
    return sign(gamma).reshape(1, -1, *(1,) * (a["rank"] - 2)) if ok else None


def _norm_steps(a: Attributes, first: bool, operands: list[Any]) -> list[Step] | None:
    gamma, beta, mean, var = operands[1:]
    if not first or any(k.dtype != np.float32 for k in operands[1:]):
        return None
    deviation = np.sqrt(var + var.dtype.type(a.get("epsilon", 1e-5)))
    values = (("subtract", mean), ("multiply", gamma), ("divide", deviation), ("add", beta))
    return [(step, k.reshape(1, -1, 1, 1)) for step, k in values]


OPERATORS = {
    "MatMul": Operator(
        run=matmul,
        shape=matmul_shape,
        dtype=named("to"),
        weights=-1,
        order="rows",
        launches=True,
        rows=lambda a, s: (0,) if s[0] and s[1] and len(s[0]) > 1 and len(s[1]) < 3 else (),
    ),
    "Conv": Operator(
        run=conv, shape=conv_shape, dtype=named("to"), weights=0, order="any", launches=True, images=1, rows=of_first
    ),
    "Gemm": Operator(run=_gemm, shape=_gemm_shape, weights=-1),
    "BatchNormalization": Operator(
        run=_batch_norm,
        shape=_norm_shape,
        direction=_norm_direction,
        steps=_norm_steps,
        of_images=True,
        broadcasts=False,
        order="kept",
    ),
}
