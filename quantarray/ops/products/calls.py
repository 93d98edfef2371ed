"""What convolution and matrix product share: operands as kernels take them, channels laid out as lanes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...arrays import checks
from ...arrays.thresholds import Thresholds
from ...backends.registry import contiguous, device_of, empty, kernel, moveaxis, namespace, to_host
from ...core.dtypes import Array
from ...kernels.contract import Finish, Fixed, Left
from . import epilogue
from .lanes import LANES, GroupLanes

UNREAD = np.zeros((0, 0, 0)), np.zeros((0, 0))  # scale and offset of weights of exact products
_ONE, _ZERO = np.ones((1, 1, 1, 1)), np.zeros((1, 1, 1))  # constants of exact products, which no kernel reads


def left(
    words: Array, terms: Array, images: int, row_is_pixel: bool, scale: Array = _ONE, offset: Array = _ZERO
) -> Left:
    """words uint64[planes ..]; in C order scale float64[parts terms rows lanes], offset float64[parts rows lanes]."""
    return Left(contiguous(words).reshape(len(words), -1), terms, scale, offset, images, row_is_pixel)


def term_sums(terms: Array, elements: int, axis_words: Array) -> Array:
    """int64[terms channels taps]: the sum of each term over a tap; `axis_words` uint64[planes channels taps words]."""
    ones = to_host(namespace(device_of(axis_words)).bitwise_count(axis_words).sum(axis=-1, dtype=np.int64))
    sums = []
    for first, planes, base, step in terms.tolist():
        codes = sum(ones[first + i] << i for i in range(planes))
        sums.append(base * elements + step * codes)
    return np.array(sums)


def weight_words(device: str, name: str, words: Array, groups: int) -> Array:
    """The layout of uint64[planes channels taps words] that a kernel reads."""
    planes, channels = words.shape[:2]
    flat = contiguous(words).reshape(planes, channels, -1)
    out = empty(device, (planes, GroupLanes(channels, groups).blocks, flat.shape[-1], LANES))
    kernel(device, layout_of(name))(flat, groups, out)
    return out


def words_of(layout: str) -> str:
    """The kernel that undoes a layout."""
    return layout.replace("_weights", "_words")


def layout_of(name: str) -> str:
    """The kernel that lays weights out for the kernel `name`."""
    return "dot_weights" if name in ("dot", "winograd", "framed") else "conv_weights"


def real_extras(
    pad_value: float, bias: Array | None, outside: Array, n_outside: Array, scale: Array, offset: Array
) -> tuple[Array, Array]:
    """(pad [classes channels], bias [channels]) of a real result, in the documented order.

    outside int64[classes terms channels], n_outside int64[classes], scale [terms channels], offset [channels].
    """
    pad = offset * n_outside[:, None]
    for s in range(outside.shape[1]):
        pad = pad + scale[s] * outside[:, s]
    shift = np.zeros(outside.shape[-1]) if bias is None else bias.astype(np.float64)
    return np.asarray(pad_value * pad), shift


def integer_extra(
    terms: Array, inside: Array, pad_value: int, bias: Array | None, outside: Array, dtype: np.dtype[Any]
) -> Array:
    """[classes channels] of the result's dtype: all of an exact result that does not depend on the pixel's codes.

    `terms` are x's; inside and outside are the sums of the weights' one term, int64[classes terms channels].
    """
    extra: Array = int(terms[0, 2]) * inside[:, 0] + pad_value * outside[:, 0]
    return (extra if bias is None else extra + bias).astype(dtype)


class Sums(Protocol):
    """What makes exact sums of a left operand, or codes of them: a `Call`, or what does as one does by other means."""

    @property
    def device(self) -> str: ...
    @property
    def finish(self) -> Finish: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def shape(self) -> tuple[int, ...]: ...

    def finished(self, finish: Finish, packed: epilogue.Packed | None) -> Sums:
        """The same with another last step."""

    def __call__(self, x: Left, out: Array | None = None) -> Any:
        """The result, which is `out` if it is dense and that is given."""


class Call(NamedTuple):
    """A kernel with all of its arguments but the left operand, and what its result is."""

    device: str
    name: str
    fixed: Fixed
    packed: epilogue.Packed | None  # the result, if it is thresholded
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    flags: tuple[bool, ...] = ()  # arguments that a kernel has besides

    @property
    def finish(self) -> Finish:
        return self.fixed.finish

    def finished(self, finish: Finish, packed: epilogue.Packed | None) -> Call:
        """The same with another last step."""
        return self._replace(fixed=self.fixed._replace(finish=finish, made={}), packed=packed)

    def __call__(self, x: Left, out: Array | None = None) -> Any:
        """A dense array, C-contiguous, which is `out` if it is given; or a QuantArray of thresholded codes."""
        run = kernel(self.device, self.name)
        if self.packed is None:
            made = empty(self.device, self.shape, self.dtype) if out is None else out
            rows = math.prod(self.shape[:-1]), self.shape[-1]
            run(x, self.fixed, *self.flags, made.reshape(rows))
            return made
        words = self.packed.empty()
        run(x, self.fixed, *self.flags, words.reshape(self.packed.rows))
        return self.packed(words)


def write_to(
    op: str, device: str, out: Any, requantize: Thresholds | None, dtype: np.dtype[Any], shape: tuple[int, ...],
    last: int, call: Callable[[Array | None], Any],
) -> Any:  # fmt: skip
    """`call(buffer)` into an array of the caller's, whose channels are axis `last`; a copy where it lies otherwise.

    A buffer has channels last, whatever axis of the result they are.
    """
    if requantize is not None:
        raise TypeError(f"{op}: out takes dense results; with requantize= the result is packed, and a new array")
    dense = isinstance(out, np.ndarray) or hasattr(out, "__cuda_array_interface__")
    fits = dense and device_of(out) == device and out.dtype == dtype and out.shape == shape
    if not fits or not getattr(out.flags, "writeable", True):
        got = f"{out.dtype} {out.shape} on {device_of(out)}" if dense else checks.kind(out)
        where = "NumPy array" if device == "cpu" else f"CuPy array on {device}"
        raise ValueError(f"{op}: out must be a writable {where} of {dtype} {shape}, got {got}")
    rows = moveaxis(out, last, -1)
    if rows.flags.c_contiguous:
        call(rows)
    else:
        out[...] = call(None)
    return out


class OfNothing(NamedTuple):
    """A product of any operands whose sums have no elements: the bias, or zeros."""

    device: str
    bias: Array | None
    requantize: Thresholds | None
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def call(self) -> OfNothing:
        """What says the dtype and shape of the result, as of other products."""
        return self

    def __call__(self, *operands: Any, out: Array | None = None) -> Any:
        made = empty(self.device, self.shape, self.dtype) if out is None else out
        made[...] = 0 if self.bias is None else namespace(self.device).asarray(self.bias.astype(self.dtype))
        return made if self.requantize is None else self.requantize(made)


def full_lane(constant: Array, channels: int) -> Array:
    """A constant's last axis, 1 or channels long, in full."""
    return np.broadcast_to(constant, (*constant.shape[:-1], channels))
