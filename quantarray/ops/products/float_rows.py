"""Products of rows of floats and packed weights: by the weights' values, or by int8 codes of each row.

No matrix of floats is made of the weights: a kernel computes values of some outputs in a cache. On a GPU, and where
tables of levels would be larger than the values, those of some outputs are in memory. Sums are those of `row_product`,
on every device and by any number of threads.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...arrays import bfloat16, checks, likely_fix
from ...arrays.array import QuantArray
from ...arrays.exchange import as_cupy, is_on_gpu
from ...arrays.thresholds import Thresholds
from ...backends.registry import (
    common_device,
    contiguous,
    device_of,
    empty,
    few_rows,
    has_kernel,
    kernel,
    namespace,
    to_host,
)
from ...core.code_values import constant_dims
from ...core.dtypes import Array
from ...core.format import WORD_BITS
from ..words.conversion import dequantize, level_operands, scaled_operands, spaced_operands, spacing
from . import calls
from .operand import bias_values

_VALUES = 1 << 20  # of weights, or of their levels, that are in memory at once: 4 MiB
_LEAST = np.float32(1e-5)  # the smallest magnitude that a row is divided by, as BitNet has it
TINY = np.float32(1e-36)  # 127 / it is a float32
SMALL = 16, 32  # elements of groups that are shorter than a word
_MOST_BYTE = 255
_LONGEST = 1 << 16  # elements of a row that `byte_row_product` takes
_FAR = 1 << 11  # 32 products of int8 and levels that are nearer to 0 have a sum that float32 is exact for
_FLOATS = "float16", "float32", "bfloat16"
_FLOAT32 = np.dtype(np.float32)
_NONE = np.empty((0, 0), np.float32)
# Forms of a product
VALUES, GROUPS, ROUNDED = "values of w", "int8 runs and groups of w", "rounded rows and values of w"
WORDS, INTEGERS = "int8 rows and the words of w", "int8 rows and w laid out"


def is_floats(x: Any) -> bool:
    """True for an array of floats of 16 or 32 bits, of any library."""
    if type(x) is np.ndarray and x.dtype.char in "ef":  # without a name, which takes NumPy 10 us
        return True
    return not checks.is_masked(x) and str(getattr(x, "dtype", "")).rpartition(".")[2] in _FLOATS


def product(
    op: str, x: Any, w: QuantArray, bias: Any, requantize: Thresholds | None, out_dtype: Any, out: Any, quantize_x: Any,
    before: Sequence[Callable[[Any], Array] | None], integers: Callable[[Array, QuantArray], Array],
) -> Any:  # fmt: skip
    """x [.. k] of floats times w [o k]; see `linear`.

    before: what rows go through first. integers: the product of int8 [m k] and packed weights.
    """
    quantize_x = checked_runs(op, "quantize_x", quantize_x, SMALL)
    a = widened(op, x)
    if not a.ndim or a.shape[-1] != w.shape[1]:
        hint = likely_fix.weights(a, w) if a.ndim and a.shape[-1] == w.shape[0] else ""
        raise ValueError(f"{op}: x {a.shape} and w {w.shape} must have the same last length{hint}")
    device = "cpu" if type(a) is np.ndarray and type(w) is QuantArray else common_device(op, x=a, w=w)
    kind = _FLOAT32 if out_dtype is None else checks.dtype(op, "out_dtype", out_dtype, (np.float16, np.float32))
    (outputs, k), leading = w.shape, a.shape[:-1]
    shift, count = bias_values(op, bias, outputs), math.prod(leading)
    form = VALUES if quantize_x is None else form_of(op, w, quantize_x, count, device)
    for step in before:
        a = a if step is None else step(a)
    rows, shape = contiguous(a).reshape(count, k), (*leading, outputs)

    def call(buffer: Array | None) -> Any:
        if form == VALUES:
            y = _by_values(rows, w)
        elif form == GROUPS:
            y = _by_groups(op, rows, w, k if quantize_x == "row" else quantize_x)
        elif form == ROUNDED:
            y = _by_values(rounded(op, rows, quantize_x), w)
        elif form == WORDS:
            y = by_words(*codes_of(op, rows), w)
        else:
            y = by_codes(op, rows, w, quantize_x, integers)
        if shift is not None:
            y += namespace(device).asarray(shift.astype(np.float32))
        result = y.reshape(shape)
        if buffer is not None:
            buffer[...] = result
            return buffer
        if requantize is not None:
            return requantize(result)
        return result if kind is _FLOAT32 else result.astype(kind, copy=False)

    if out is None:
        return call(None)
    return calls.write_to(op, device, out, requantize, kind, shape, len(shape) - 1, call)


def checked_runs(op: str, name: str, value: Any, small: tuple[int, ...] = ()) -> Any:
    """Check for what becomes int8 together: "row", a multiple of 64 elements or one of `small`, as an int, or None."""
    if value is None or (isinstance(value, str) and value == "row"):
        return value
    named = ", ".join(['"row"', *map(str, small)]) + ("," if small else "")
    message = f"{op}: {name} must be {named} or a multiple of {WORD_BITS} elements, got {value!r}"
    try:
        count = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        raise (ValueError if isinstance(value, str) else TypeError)(message) from None
    if count not in small and (count < 1 or count % WORD_BITS):
        raise ValueError(message)
    return count


def form_of(op: str, w: QuantArray, quantize_x: Any, rows: int, device: str) -> str:
    """Choose how rows of floats meet w; ValueError for runs or groups that no kernel takes."""
    if quantize_x is None:
        return VALUES
    form, most = w._cached(("form", quantize_x), _form_and_most, op, w, quantize_x, device)
    return str(form) if rows <= most else INTEGERS


def _form_and_most(op: str, w: QuantArray, quantize_x: Any, device: str) -> tuple[str, float]:
    """Return the form of a product, and up to how many rows; more are multiplied as INTEGERS."""
    small, even = w.group is not None and w.group % WORD_BITS, _is_even(w)
    of_groups = "" if w.group is None else f" in groups of {w.group}"
    if small and w.group not in SMALL:
        raise ValueError(
            f"{op}: with quantize_x, groups of w are {', '.join(map(str, SMALL))} or a multiple of {WORD_BITS}, got "
            f"{w.group}; without quantize_x, x is multiplied by the values of w"
        )
    if not even and (small or quantize_x in SMALL):
        fix = "leave quantize_x out" if small else f'pass "row" or a multiple of {WORD_BITS}, or leave quantize_x out'
        raise ValueError(
            f"{op}: quantize_x={quantize_x!r} needs levels of w that are evenly spaced, got {w.dtype}{of_groups}; {fix}"
        )
    if even and (w.group is not None or quantize_x != "row"):
        return GROUPS, math.inf
    if w.dtype.kind == "table" or w.group is not None:  # integers by tables, or by each group, took 1000 times as long
        return ROUNDED, math.inf
    return WORDS, few_rows(device, w.bits) if quantize_x == "row" and is_in_place(w) else -1


def _is_even(w: QuantArray) -> bool:
    """Return True if the levels of w are evenly spaced, and `group_product` takes them."""
    span = spacing(w.dtype) if w.dtype.kind != "uniform" else (0, 1)
    if span is None:
        return False
    first, apart = span
    return 0 < apart and apart * (w.dtype.n_levels - 1) <= _MOST_BYTE and abs(first) < _FAR


def rounded(op: str, x: Array, quantize_x: Any) -> Array:
    """Return codes / s of each run of rows, in float32."""
    xp, k = namespace(device_of(x)), x.shape[1]
    run = max(k, 1) if quantize_x == "row" else quantize_x
    y: Array = xp.empty_like(x)
    for first in range(0, k, run):
        codes, scale = codes_of(op, x[:, first : first + run])
        y[:, first : first + run] = codes / scale
    return y


def widened(op: str, x: Any) -> Array:
    """Return x as float32: NumPy's or CuPy's array."""
    if type(x) is np.ndarray and x.dtype == np.float32:  # without looking at what it could be, which takes 5 us
        return x
    of_gpu = bfloat16.of_gpu(op, x)
    if of_gpu is not None:
        return of_gpu.widened()
    a: Array = as_cupy(op, "x", x) if is_on_gpu(x) else checks.numbers(op, "x", x)
    return a.astype(np.float32, copy=False)


def rows_of_floats(op: str, x: Any) -> Array:
    """Return x as contiguous float32; TypeError for what is no array of floats that `linear` takes."""
    if not is_floats(x):
        got = f"{checks.kind(x)}{likely_fix.integers(x)}"
        raise TypeError(f"{op}: x must be an array of float32, float16 or bfloat16, got {got}")
    return contiguous(widened(op, x))


def _by_values(x: Array, w: QuantArray) -> Array:
    """x @ values(w).T in float32."""
    device, outputs = device_of(x), w.shape[0]
    y = empty(device, (len(x), outputs), np.float32)
    if not y.size or not w.shape[1]:
        y[...] = 0
        return y
    if device == "cpu" and (w.dtype.kind == "uniform" or (w.constants.has_scale and spacing(w.dtype) is not None)):
        kernel(device, "row_product_spaced")(x, *w._cached("spaced", spaced_operands, w, True), y)
        return y
    levels = w.dtype.n_levels * math.prod(constant_dims(w.constants))
    by_tables = device == "cpu" and levels <= w.size
    if by_tables and w.dtype.levels is not None and w.constants.has_scale:
        kernel(device, "row_product_scaled")(x, *w._cached("scaled", scaled_operands, w, True), y)
        return y
    if by_tables and w.dtype.kind == "table":  # tables in another order, which are as large as the array's
        kernel(device, "row_product_levels")(x, *w._cached("levels", level_operands, w, y.dtype), y)
        return y
    at_once = max(1, _VALUES * outputs // max(1, levels if by_tables else w.size))
    for first in range(0, outputs, at_once):
        part = w if at_once >= outputs else w[first : first + at_once]
        some = y if part is w else empty(device, (len(x), part.shape[0]), np.float32)
        if by_tables:
            kernel(device, "row_product_levels")(x, *level_operands(part, some.dtype), some)
        else:
            kernel(device, "row_product")(x, dequantize(part).astype(np.float32, copy=False), some)
        if part is not w:
            y[:, first : first + at_once] = some
    return y


def _by_groups(op: str, x: Array, w: QuantArray, run: int) -> Array:
    """x as int8 of each `run` elements, times codes of groups, by `group_product`."""
    device, (m, k) = device_of(x), x.shape
    y = empty(device, (m, w.shape[0]), np.float32)
    if not y.size or not k:
        y[...] = 0
        return y
    words, low, step, first, apart, group = w._cached("spaced", spaced_operands, w, device == "cpu")
    unit = min(SMALL) if min(SMALL) in (run, group) else max(SMALL)
    rows = _encoded(op, x, run, unit, first, low.size > 0)
    kernel(device, "group_product")(*rows, words, low, step, apart, group, unit, y)
    return y


def _encoded(op: str, x: Array, run: int, unit: int, first: int, sums: bool) -> tuple[Array, ...]:
    """Return what `encode_runs` makes of x."""
    device, (m, k) = device_of(x), x.shape
    xp, n = namespace(device), -(-k // unit)
    if has_kernel(device, "encode_runs"):
        codes, wrong = empty(device, (m, n * unit), np.int8), np.zeros(1, bool)
        scales = [*empty(device, (2 + sums, m, n), np.float32), _NONE][:3]
        kernel(device, "encode_runs")(x, run, unit, first, wrong, *scales, codes)
        _check_finite(op, x, wrong[0])
        return codes, *scales
    runs = -(-k // run)
    parts = xp.zeros((m, runs * run), np.float32)
    parts[:, :k] = x
    parts = parts.reshape(m, runs, run)
    ends = xp.abs(parts).max(axis=2)
    _check_finite(op, x, not np.isfinite(to_host(ends)).all())
    ends = xp.maximum(ends, _LEAST)
    codes = xp.zeros((m, n * unit), np.int8)
    codes[:, :k] = xp.rint(parts * (np.float32(127) / ends)[..., None]).astype(np.int8).reshape(m, -1)[:, :k]
    shares = contiguous((ends / np.float32(127))[:, xp.arange(n) * unit // run])
    counts = codes.reshape(m, n, unit).sum(axis=2, dtype=np.int32)
    totals = counts.astype(np.float32) * shares if sums else xp.zeros((0, 0), np.float32)
    return codes, shares, (counts * np.int32(first)).astype(np.float32), totals


def _check_finite(op: str, x: Array, wrong: Any) -> None:
    """Raise ValueError with the first number of rows x [m k] that is not finite, if any is wrong."""
    if wrong:
        row, element = np.argwhere(~np.isfinite(to_host(x)))[0]
        raise ValueError(
            f"{op}: x must be finite where it is quantised, got {x[row, element]} at row {row}, element {element}"
        )


def is_in_place(w: QuantArray) -> bool:
    """Return True if `byte_row_product` takes w: levels evenly spaced, the same constants along a row."""
    spaced = w.dtype.kind == "uniform" or w.dtype.step is not None
    return w.group is None and 0 < w.shape[1] <= _LONGEST and spaced


def by_words(codes: Array, scale: Array, w: QuantArray) -> Array:
    """Compute what `by_codes` does from the words of w, if it `is_in_place`: no layout of them is held."""
    y = np.empty((len(codes), w.shape[0]), np.float32)
    kernel("cpu", "byte_row_product")(codes, scale.reshape(-1), *words_in_place(w), y)
    return y


class Words(NamedTuple):
    """A view of packed rows: their words, and a constant each or none, as `byte_row_product` reads them."""

    words: Array  # [planes rows ..]
    first: float  # level
    apart: float  # are levels
    by: Array
    offset: Array

    def at(self, ids: Array) -> Words:
        """Return those of some rows."""
        by, offset = (constants[ids] if constants.size else constants for constants in (self.by, self.offset))
        return self._replace(words=self.words.take(ids, axis=1), by=by, offset=offset)

    def highest(self, planes: int) -> Words:
        """Return the highest planes alone, whose levels are in the middle of those that they leave open."""
        left_open = len(self.words) - planes
        first = self.first + self.apart * (2**left_open - 1) / 2
        return self._replace(words=self.words[left_open:], first=first, apart=self.apart * 2**left_open)


def words_in_place(w: QuantArray) -> Words:
    """Return the words and constants of w that `is_in_place`."""
    words = w.words
    words = words.reshape(w.bits, w.shape[0], words.shape[-1])
    return Words(words, *w._cached("row", _row_operands, w))


def _row_operands(w: QuantArray) -> tuple[int, int, Array, Array]:
    """Return the first level of w, how far levels are apart, and a scale and an offset for each output, or none."""
    first, apart = w.dtype._term_rows[0, 2:].tolist()
    scale, offset = (_of_outputs(a, w.shape[0]) for a in (w.scale, w.offset))
    return first, apart, scale, offset


def _of_outputs(constants: Array | None, outputs: int) -> Array:
    """Return a constant for each output, or none."""
    if constants is None:
        return np.empty(0, np.float32)
    if constants.size != outputs:
        return np.full(outputs, constants.item(), np.float32)
    return contiguous(constants.reshape(-1))


def by_codes(
    op: str,
    x: Array,
    w: QuantArray,
    quantize_x: Any,
    integers: Callable[[Array, QuantArray], Array],
    least: Any = _LEAST,
) -> Array:
    """Sum over the groups of x of (int8 codes @ w) / s, with s = 127 / the largest magnitude of a row in the group.

    The products are exact where the levels of w are integers; each is divided, and added, in float64. `least` as in
    `codes_of`.
    """
    k = x.shape[1]
    group = max(k, 1) if quantize_x == "row" else quantize_x
    if 0 < k <= group and len(x) and isinstance(x, np.ndarray):  # some elements at a time: no array of float64
        codes, scale = codes_of(op, x, least)
        exact, once = integers(codes, w), empty("cpu", (len(x), w.shape[0]), np.float32)
        kernel("cpu", "divide_rows")(exact, scale.reshape(-1), once)
        return once
    total = namespace(device_of(x)).zeros((len(x), w.shape[0]))
    for first in range(0, k if len(x) else 0, group):
        codes, scale = codes_of(op, x[:, first : first + group], least)
        total += integers(codes, w if group >= k else w[:, first : first + group]).astype(np.float64) / scale
    y: Array = total.astype(np.float32)
    return y


def codes_of(op: str, x: Array, least: Any = _LEAST) -> tuple[Array, Array]:
    """Return int8 codes of rows, x * scale rounded, and scale [rows 1]: 127 / the largest magnitude, or `least`."""
    device = device_of(x)
    if has_kernel(device, "encode_rows"):
        codes, scale, wrong = empty(device, x.shape, np.int8), empty(device, (len(x), 1), np.float32), np.zeros(1, bool)
        kernel(device, "encode_rows")(contiguous(x), float(least), wrong, scale.reshape(-1), codes)
        _check_finite(op, x, wrong[0])
        return codes, scale
    xp = namespace(device)
    ends = xp.abs(x).max(axis=1, keepdims=True)
    _check_finite(op, x, not np.isfinite(to_host(ends)).all())
    scale = np.float32(127) / xp.maximum(ends, least)
    return xp.rint(x * scale).astype(np.int8), scale
