"""Transposed convolutions of any number of axes."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np

from ...core.dtypes import Array
from .record import Attributes, Constants, Operator, Shapes, named

_MOST = 2**24  # of a length, stride, dilation or pad


class Scattered(NamedTuple):
    """A geometry of a transposed convolution: each field has one entry for each axis of the image."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]  # cut off before and after, or added where they are negative
    output: tuple[int, ...]


def scattered(a: Attributes, image: tuple[int, ...], kernel: tuple[int, ...]) -> Scattered:
    """Return the geometry that attributes describe; raise ValueError if it leaves no outputs."""
    n = len(image)
    strides, dilations = (tuple(a.get(name) or (1,) * n) for name in ("strides", "dilations"))
    more, wanted = tuple(a.get("output_padding") or (0,) * n), a.get("output_shape")
    auto, pads = a.get("auto_pad", "NOTSET"), tuple(a.get("pads") or (0,) * 2 * n)
    if not len(strides) == len(dilations) == len(more) == len(pads) // 2 == n or len(pads) % 2:
        raise ValueError(f"strides {strides}, dilations {dilations} and pads {pads} do not fit {n} axes of an image")
    numbers = (*strides, *dilations, *kernel)
    if min(numbers) < 1 or min((*more, *pads)) < 0 or max((*numbers, *more, *pads)) >= _MOST:
        raise ValueError(f"strides {strides}, dilations {dilations} and pads {pads} are no lengths")
    whole = [
        (m - 1) * s + e + (k - 1) * d + 1 for m, s, e, k, d in zip(image, strides, more, kernel, dilations, strict=True)
    ]
    cut = tuple(zip(pads[:n], pads[n:], strict=True))
    if wanted is not None or auto in ("SAME_UPPER", "SAME_LOWER"):
        lengths = [m * s for m, s in zip(image, strides, strict=True)] if wanted is None else list(wanted)[-n:]
        total = [w - length for w, length in zip(whole, lengths, strict=True)]
        cut = tuple((t // 2, t - t // 2) if auto == "SAME_UPPER" else (t - t // 2, t // 2) for t in total)
    elif auto == "VALID":
        cut = ((0, 0),) * n
    elif auto != "NOTSET":
        raise ValueError(f"auto_pad {auto!r} is none of NOTSET, SAME_UPPER, SAME_LOWER and VALID")
    output = tuple(w - before - after for w, (before, after) in zip(whole, cut, strict=True))
    if min(output) < 1 or max(output) >= _MOST * 2:
        raise ValueError(f"pads {cut} of {whole} outputs leave {output}")
    return Scattered(strides, dilations, cut, output)


def _conv_transpose(a: Attributes, x: Array, w: Array, bias: Array | None = None) -> Array:
    """Convolve x [n c ..] transposed by w [c o/groups ..]; integers are summed in int64."""
    groups, (n, c, *image) = a.get("group", 1), x.shape
    how = scattered(a, tuple(image), w.shape[2:])
    kind = x.dtype if x.dtype.kind == "f" else np.dtype(np.int64)
    parts = x.astype(kind).reshape(n, groups, c // groups, -1)
    weights = w.astype(kind).reshape(groups, c // groups, *w.shape[1:])
    spans = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], how.dilations, strict=True)]
    axes = list(zip(image, how.strides, spans, how.output, how.pads, strict=True))
    lengths = [max((m - 1) * s + k, out + before) for m, s, k, out, (before, _) in axes]
    y = np.zeros((n, groups, w.shape[1], *lengths), kind)
    for at in product(*(range(k) for k in w.shape[2:])):
        of_tap: Any = weights[(slice(None), slice(None), slice(None), *at)]  # type: ignore[arg-type]
        sums = np.matmul(of_tap.swapaxes(1, 2), parts)
        steps = zip(at, how.dilations, image, how.strides, strict=True)
        index: tuple[Any, ...] = tuple(slice(t * d, t * d + (m - 1) * s + 1, s) for t, d, m, s in steps)
        y[(..., *index)] += sums.reshape(n, groups, w.shape[1], *image)
    y = y.reshape(n, groups * w.shape[1], *lengths)
    for axis, (_, _, _, out, (before, _)) in enumerate(axes, 2):
        ahead = [(0, 0)] * axis + [(max(0, -before), 0)] + [(0, 0)] * (y.ndim - axis - 1)
        first = max(0, before)
        y = np.pad(y, ahead)[(slice(None),) * axis + (slice(first, first + out),)]
    if bias is not None:
        y = y + bias.astype(kind).reshape(1, -1, *(1,) * len(image))
    return y.astype(a.get("to", x.dtype), copy=False)


def _shape(a: Attributes, shapes: Shapes, constants: Constants) -> Shapes:
    x, w, groups = shapes[0], shapes[1], a.get("group", 1)
    if len(x) < 3 or len(w) != len(x) or 0 in (*x, *w):
        raise ValueError(f"x {x} and w {w} must have as many axes, at least 3, and elements")
    if groups < 1 or x[1] != w[0] or w[0] % groups or tuple(a.get("kernel_shape") or w[2:]) != tuple(w[2:]):
        raise ValueError(f"x {x} and w {w} do not go together in {groups} groups")
    if len(shapes) > 2 and shapes[2] is not None and shapes[2] != (w[1] * groups,):
        raise ValueError(f"the bias {shapes[2]} must be one for each of {w[1] * groups} channels")
    return [(x[0], w[1] * groups, *scattered(a, tuple(x[2:]), tuple(w[2:])).output)]


OPERATORS = {
    "ConvTranspose": Operator(run=_conv_transpose, shape=_shape, dtype=named("to"), weights=0, gpu=False),
}
