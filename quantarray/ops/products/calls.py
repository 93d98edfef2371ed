"""Calls of kernels: how they are prepared once, looked up again, and run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import is_
from typing import Any, NamedTuple, Protocol, overload

import numpy as np

from ...arrays import checks
from ...arrays.array import QuantArray
from ...arrays.launched import Launched
from ...arrays.layouts import layouts_of
from ...arrays.thresholds import Thresholds
from ...backends.registry import common_device, device_of, empty, kernel, moveaxis, namespace, writes_words, zeros
from ...core.bfloat16 import narrowed
from ...core.dtypes import Array, Constants, DType
from ...core.format import word_count
from ...kernels.operands import Finish, Fixed, Left
from ..words.conversion import memory_of
from .channels import channels_last

UNREAD = np.zeros((0, 0, 0)), np.zeros((0, 0))  # scale and offset of weights of exact products
_ONE, _ZERO = np.ones((1, 1, 1, 1)), np.zeros((1, 1, 1))  # constants of exact products, which no kernel reads


def left(
    words: Array, terms: Array, images: int, row_is_pixel: bool, scale: Array = _ONE, offset: Array = _ZERO
) -> Left:
    """Bring words uint64[planes ..] to C order, with constants in it.

    scale float64[parts terms rows lanes], offset float64[parts rows lanes].
    """
    if not words.flags.c_contiguous:
        words = channels_last(words)
    return Left(words.reshape(len(words), -1), terms, scale, offset, images, row_is_pixel)


class Packed(NamedTuple):
    """A packed result before it is computed: all that does not depend on its codes."""

    device: str
    dtype: DType
    shape: tuple[int, ...]
    constants: Constants
    words: tuple[int, ...]  # the shape of its words
    rows: tuple[int, int, int]  # the same as kernels have it: [bits, rows, word]

    def empty(self, kernel: str = "", groups: int = 1) -> Array:
        """Allocate words that are all zero, unless the kernel that they are for writes them all."""
        whole = writes_words(self.device, kernel, self.rows[1], self.shape[-1], groups)
        return empty(self.device, self.words) if whole else zeros(self.device, self.words)

    def __call__(self, words: Array) -> QuantArray:
        return QuantArray(words, self.dtype, self.shape, len(self.shape) - 1, self.constants)


@overload
def packed(device: str, requantize: Thresholds, shape: tuple[int, ...]) -> Packed: ...
@overload
def packed(device: str, requantize: None, shape: tuple[int, ...]) -> None: ...
def packed(device: str, requantize: Thresholds | None, shape: tuple[int, ...]) -> Packed | None:
    """Describe the packed result of thresholds, of a shape, packed on its last axis; None where there are none."""
    if requantize is None:
        return None
    into, *outer, words = requantize.into, *shape[:-1], word_count(shape[-1])
    rows = into.bits, math.prod(outer), words
    return Packed(device, into, shape, requantize._law(len(shape)), (into.bits, *outer, words), rows)


class Sums(Protocol):
    """A call that makes exact sums of a left operand, or codes of them."""

    @property
    def device(self) -> str: ...
    @property
    def finish(self) -> Finish: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def shape(self) -> tuple[int, ...]: ...

    def finished(self, finish: Finish, packed: Packed | None) -> Sums:
        """Return the same sums with another last step."""

    def __call__(self, x: Left, out: Array | None = None) -> Any:
        """Compute the result, in `out` if it is dense and `out` is passed."""


class Output(NamedTuple):
    """A result before it is computed: dense, of a dtype and shape, or `packed` codes of thresholds."""

    packed: Packed | None
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class Call(NamedTuple):
    """A kernel with all of its arguments but the left operand, and what its result is."""

    device: str
    name: str
    fixed: Fixed
    packed: Packed | None  # the result, if it is thresholded
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    more: tuple[Array, ...] = ()  # arguments that a kernel has besides

    @property
    def finish(self) -> Finish:
        return self.fixed.finish

    def finished(self, finish: Finish, packed: Packed | None) -> Call:
        """Return the same sums with another last step."""
        return self._replace(fixed=self.fixed._replace(finish=finish, cache={}), packed=packed)

    def __call__(self, x: Left, out: Array | None = None) -> Any:
        """Compute a dense array, C-contiguous, in `out` if it is passed; or a QuantArray of thresholded codes."""
        run = kernel(self.device, self.name)
        if self.packed is None:
            result = empty(self.device, self.shape, self.dtype) if out is None else out
            rows = math.prod(self.shape[:-1]), self.shape[-1]
            run(x, self.fixed, *self.more, result.reshape(rows))
            return result
        words = self.packed.empty(self.name, self.fixed.w.groups)
        run(x, self.fixed, *self.more, words.reshape(self.packed.rows))
        return self.packed(words)


class Product(NamedTuple):
    """A product before it is computed, to which `conv_added` adds a shortcut."""

    call: Call
    left: Left
    shape: tuple[int, ...]  # of the result, with channels last

    @property
    def device(self) -> str:
        return self.call.device

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.call.dtype

    def __call__(self) -> Any:
        """Compute the sums alone."""
        return self.call(self.left).reshape(self.shape)


def write_to(
    op: str, device: str, out: Any, requantize: Thresholds | None, dtype: np.dtype[Any], shape: tuple[int, ...],
    last: int, call: Callable[[Array | None], Any],
) -> Any:  # fmt: skip
    """`call(buffer)` into an array or tensor of the caller's, whose channels are axis `last`.

    A copy if memory has another order, and rounded if a float32 result goes to float16 or bfloat16. A buffer has
    channels last, whatever axis of the result they are.
    """
    if requantize is not None:
        raise TypeError(f"{op}: out takes dense results; with requantize= the result is packed, and a new array")
    # Not by way of `memory_of`, which takes 5 us
    direct = isinstance(out, np.ndarray) and out.dtype == dtype
    to, *types = (out, dtype) if direct else memory_of(op, out, dtype)
    types = [kind for kind in types if kind == dtype or (device == "cpu" and dtype == np.float32)]
    fits = to is not None and device_of(to) == device and to.dtype in types and tuple(to.shape) == shape
    if not fits or not getattr(to.flags, "writeable", True):
        got = checks.kind(out) if to is None else f"{out.dtype} {tuple(to.shape)} on {device_of(to)}"
        where = "NumPy array" if device == "cpu" else f"CuPy array on {device}"
        raise ValueError(f"{op}: out must be a writable {where} of {dtype} {shape}, or a tensor, got {got}")
    rows = moveaxis(to, last, -1)
    if rows.flags.c_contiguous and to.dtype == dtype:
        call(rows)
    else:
        result = call(None)
        to[...] = result if to.dtype == dtype else narrowed(result, to.dtype)
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
        """Return what has the dtype and shape of the result."""
        return self

    def __call__(self, *operands: Any, out: Array | None = None) -> Any:
        result = empty(self.device, self.shape, self.dtype) if out is None else out
        result[...] = 0 if self.bias is None else namespace(self.device).asarray(self.bias.astype(self.dtype))
        return result if self.requantize is None else self.requantize(result)


# Calls made ready once


@dataclass(frozen=True, slots=True)
class _Latest:
    """A record of the latest call by some weights: the next is most often the same, which is seen without a hash of its
    options."""

    options: tuple[Any, ...]
    rest: tuple[Any, ...]
    call: Any


def prepared(
    op: str,
    x: Any,
    w: QuantArray,
    options: tuple[Any, ...],
    bias: Array | None,
    build: Callable[..., Any],
    *others: Any,
) -> Any:
    """Return `build(device, x, w, bias, *options)`, prepared once for each form of x and others, `options` and bias.

    DeviceError if x and w are on different devices.
    """
    shift = None if bias is None else (bias.dtype, bias.tobytes())
    rest = shift, *[a._form if isinstance(a, QuantArray) else (a.dtype, a.shape, device_of(a)) for a in (x, *others)]
    layouts = w._cache
    latest: _Latest | None = None if layouts is None else layouts.entries.get(op)
    if latest is not None and all(map(is_, options, latest.options)) and rest == latest.rest:
        return latest.call
    device = common_device(op, x=x, w=w)
    key = (op, rest, options, tuple(map(type, options)))  # True is not 1 here, though the two are equal
    try:
        hash(key)
    except TypeError:  # an argument has no hash
        return build(device, x, w, bias, *options)
    make = build if device == "cpu" else partial(_on_gpu, build)
    call = w._cached(key, make, device, x, w, bias, *options)
    layouts_of(w).alias(op, _Latest(options, rest, call), key)
    return call


def _on_gpu(build: Callable[..., Any], *args: Any) -> Launched:
    return Launched(build(*args))
