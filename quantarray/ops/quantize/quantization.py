"""Quantise values to a packed array: fit a quantiser's constants, encode block by block."""

from __future__ import annotations

import math
from copy import copy
from typing import Any, TypeGuard

import numpy as np

from ...arrays import bfloat16, checks, likely_fix
from ...arrays.array import QuantArray
from ...arrays.constants import make_constants
from ...backends.registry import device_of, empty
from ...core.dtypes import Array, Constants
from ...core.errors import DeviceError
from ...core.format import WORD_BITS, word_count
from ...core.progress import Progress
from ...quantizers.base import Quantizer, declares
from ..words.conversion import pack_codes
from ..words.placement import created
from . import encoding, fitting, gpu_encoding, grids, parts, prepared_schemes
from .importance import importance_of, weighted
from .requantizing import by_levels
from .scheme_choice import chosen

# Elements that are computed at a time, so that arrays may be larger than memory. NumPy makes several float64 arrays of
# a block; the kernel makes none, but searches for the thresholds of its constants again for each.
_BLOCK, _KERNEL_BLOCK = 1 << 22, 1 << 26


@created
def quantize(
    x: Any,
    quantizer: Quantizer | None = None,
    axis: int = -1,
    scale_axis: int | tuple[int, ...] | None = None,
    group: int | None = None,
    *,
    bits: int | None = None,
    calibration: Any = None,
    importance: Any = None,
    progress: bool = False,
) -> QuantArray:
    """Quantise an array of floats or integers and pack it along `axis`.

    With `bits` instead of a quantiser, `choose` finds one for the whole of x, or of `calibration`; the result's
    `scheme` says which.

    The quantiser's constants are fitted to the whole array; with `scale_axis` for each index of those axes (0 for
    the output channels of weights); with `group` for each run of `group` elements of the packed axis, where
    `scale_axis` defaults to all other axes; some quantisers have a group of their own. A `scale_axis` that includes the
    packed axis means `group=1`. Raises ValueError for NaN, and for infinities that constants would be fitted to;
    TypeError unless exactly one of quantizer and bits is given.

    `calibration` is what constants are fitted to instead of x: a sample, or the data of another run. It has x's
    number of axes, and x's lengths along those where constants vary.

    `importance` has a number for each element of the packed axis, such as the mean of x**2 of each input of weights:
    fitted constants are then multiplied by the factors that make sum(importance * (x - values)**2) least, as well as a
    search from five starts finds them: the error of products by uncorrelated inputs is then least. On the CPU.

    A packed array is quantised by its levels where the scheme has fixed constants, on its device; else its values, in
    float32, are made first.

    An array on a GPU, CuPy's or another library's (bfloat16 too), is fitted and packed there by every scheme of the
    package, to the same bits as on the CPU: sums are made in the same order. Schemes of your own that do not declare
    `anywhere` take a NumPy array as `calibration`.

    An `np.memmap` larger than memory is read block by block, and `progress=True` draws a bar on a terminal. Its
    constants are fitted block by block too where they vary along its first axis; where they don't, a fit takes as
    much memory as x, unless they are given (`Uniform(4, step=0.1)`) or fitted to a `calibration` sample.

    >>> import quantarray as qa, numpy as np
    >>> w = np.float32([[1, -3], [0.5, 0.5]])
    >>> q = qa.quantize(w, qa.Sign(scale=True), scale_axis=0)
    >>> q.scale.ravel(), q.dequantize().tolist()
    (array([2. , 0.5], dtype=float32), [[2.0, -2.0], [0.5, 0.5]])
    >>> qa.quantize(np.float32([0, 0.9, 2.1, 3]), bits=2).scheme
    'Uniform(2, signed=False, mse=True)'
    >>> qa.quantize([9.0, -9.0], qa.Sign(scale=True), calibration=[1.0, -3.0]).dequantize()
    array([ 2., -2.], dtype=float32)
    """
    op = "quantize"
    plain = bits is None and calibration is None and importance is None
    key = prepared_schemes.form(x, quantizer, axis, scale_axis, group) if plain else None
    ready = None if key is None else prepared_schemes.find(key)
    if ready is not None and (q := ready(x)) is not None:
        return q
    if isinstance(x, QuantArray):
        if plain and scale_axis is None and group is None and _is_fixed(quantizer):
            return by_levels(op, x, quantizer, checks.axis(op, axis, x.ndim), encoded)
        x = x.dequantize()
    a: Any = bfloat16.of_gpu(op, x) or checks.dense(op, "x", x)
    if (quantizer is None) == (bits is None):
        got = "neither" if bits is None else f"both {_named(quantizer)} and bits={bits!r}"
        raise TypeError(f"{op}: needs a quantiser such as Uniform(4), or bits= to have one chosen, got {got}")
    if quantizer is None:
        if calibration is None and device_of(a) != "cpu":
            quantizer = chosen(op, "x", a.widened() if isinstance(a, bfloat16.Bfloat16) else a, bits)
        else:
            name, seen = ("x", x) if calibration is None else ("calibration", calibration)
            quantizer = chosen(op, name, checks.real_array(op, name, seen), bits)
    if not isinstance(quantizer, Quantizer):
        got = f"{_named(quantizer)}{likely_fix.quantizer(quantizer)}"
        raise TypeError(f"{op}: quantizer must be a quantiser such as Sign() or Uniform(4), got {got}")
    at = checks.axis(op, axis, a.ndim)
    keep, group = kept_axes(op, a.shape, at, scale_axis, group, quantizer.group)
    if isinstance(a, bfloat16.Bfloat16) and (group or not quantizer.fixed):
        a = a.widened()  # to fit constants to, in groups
    source = a
    if calibration is not None:
        source = _calibration(op, calibration, a.shape, quantizer, (*keep, at) if group else keep)
    elif device_of(a) != "cpu":
        _check_fitted_anywhere(op, a, quantizer)
    constants = fitting.fit(op, source, quantizer, at, keep, group, _BLOCK)
    if importance is not None:
        h, of = importance_of(op, importance, quantizer, a.shape[at], device_of(a)), quantizer
        constants = weighted(a, h, at, group, constants, lambda trial: encoded(op, a, of, trial, at, group))
    q = encoded(op, a, quantizer, constants, at, group, progress)
    if key is not None and a is x and 0 < a.size <= _KERNEL_BLOCK:
        if device_of(a) == "cpu":
            prepared_schemes.keep(op, key, a, quantizer, at, keep, group, q.constants)
        elif quantizer.fixed:
            scheme = copy(quantizer)
            prepared_schemes.launch(key, lambda x: encoded(op, x, scheme, constants, at, group))
    return q


def _is_fixed(quantizer: Any) -> TypeGuard[Quantizer]:
    """True for a scheme that gives each value a code without a look at others."""
    return isinstance(quantizer, Quantizer) and quantizer.fixed and quantizer.pointwise and quantizer.group is None


def encoded(
    op: str, a: Any, quantizer: Quantizer, constants: Constants, at: int, group: int | None = None,
    progress: bool = False,
) -> QuantArray:  # fmt: skip
    """Pack x along axis `at` by constants that a quantiser was fitted to, or that are computed elsewhere."""
    law = make_constants(op, quantizer.dtype, a.shape, at, constants.scale, constants.offset, constants.table, group)
    law = law.to_bfloat16() if constants.bfloat16 else law
    words = _encode(op, a, quantizer, law, at, progress)
    return QuantArray(words, quantizer.dtype, a.shape, at, law, repr(quantizer))


def kept_axes(
    op: str,
    shape: tuple[int, ...],
    at: int,
    scale_axis: int | tuple[int, ...] | None,
    group: int | None,
    usual: int | None,
) -> tuple[tuple[int, ...], int | None]:
    """Return the unpacked axes along which constants vary, and the length of their groups along the packed one.

    `usual` is the quantiser's group, for calls that don't say how constants vary along the packed axis.
    """
    axes = scale_axis if isinstance(scale_axis, (tuple, list)) else () if scale_axis is None else (scale_axis,)
    keep = tuple(checks.axis(op, d, len(shape), "scale_axis") for d in axes)
    if group is None and at not in keep:
        group = usual
    if group is not None:
        group = min(checks.integer(op, "group", group, 1), max(shape[at], 1))
    if scale_axis is None:
        return tuple(d for d in range(len(shape)) if d != at) if group else (), group
    if group and at in keep:
        raise ValueError(f"{op}: group={group} already says how constants vary along the packed axis {at}")
    return tuple(d for d in keep if d != at), 1 if at in keep else group


def _check_fitted_anywhere(op: str, a: Any, quantizer: Quantizer) -> None:
    if not (quantizer.fixed or (quantizer.anywhere and declares(type(quantizer), "anywhere", "fit"))):
        raise DeviceError(
            f"{op}: {quantizer} is fitted on the CPU, as its class does not declare `anywhere`, and x is on "
            f"{device_of(a)}; pass calibration= with a sample of it as a NumPy array, or move x to the CPU with "
            f"qa.asnumpy(x)"
        )


def _calibration(op: str, sample: Any, shape: tuple[int, ...], quantizer: Quantizer, varying: tuple[int, ...]) -> Array:
    if not quantizer.pointwise:
        raise ValueError(
            f"{op}: {quantizer} takes an element's code from all values that share its constants, so constants "
            f"fitted to a calibration array do not fit x; leave calibration out"
        )
    source = checks.real_array(op, "calibration", sample)
    if source.ndim != len(shape) or any(source.shape[d] != shape[d] for d in varying):
        raise ValueError(
            f"{op}: calibration must have {len(shape)} axes, and the lengths of x {shape} along the axes {varying} "
            f"where constants vary, got {source.shape}"
        )
    return source


# encoding


def _encode(op: str, a: Array, quantizer: Quantizer, law: Constants, at: int, progress: bool) -> Array:
    """Return words [bits, *outer, word] of x packed along axis `at`."""
    if device_of(a) != "cpu" and type(quantizer).encode_words is Quantizer.encode_words:
        return gpu_encoding.encode(op, a, quantizer, law, at)
    one_pass = grids.grid_of(a, quantizer, law, at) is not None or encoding.pays(a, quantizer, law, at)
    most = _KERNEL_BLOCK if one_pass else _BLOCK
    d, cuts = parts.slices(a.shape, at, law.group, most)
    if len(cuts) == 1 or not (quantizer.pointwise or any(c.shape[lead + d] > 1 for _, c, lead in law.items())):
        return _encode_block(op, a, quantizer, law, at, one_pass, d, 0)
    outer = a.shape[:at] + a.shape[at + 1 :]
    words = empty(device_of(a), (quantizer.dtype.bits, *outer, word_count(a.shape[at])))
    with Progress(a.shape[d] if progress else 0) as bar:
        for part in cuts:
            constants = _law_of(law, d, part, at)
            block = _encode_block(op, a[parts.along(d, part)], quantizer, constants, at, one_pass, d, part.start)
            if d == at:
                words[..., part.start // WORD_BITS : word_count(part.stop)] = block
            else:
                words[parts.along(1 + (d if d < at else d - 1), part)] = block
            bar.update(part.stop)
    return words


def _law_of(law: Constants, d: int, part: slice, at: int) -> Constants:
    """Return the constants of a part of axis d."""
    group = law.group if law.group and d == at else 1
    cut = slice(part.start // group, -(-part.stop // group))
    return law.map(lambda c, lead: c[parts.along(lead + d, cut)] if c.shape[lead + d] > 1 else c, law.group)


def _encode_block(
    op: str, a: Array, quantizer: Quantizer, law: Constants, at: int, one_pass: bool, d: int, start: int
) -> Array:
    """Return words of the part of x that begins at index `start` of axis d."""
    words = quantizer.encode_words(a, law, at, start * math.prod(a.shape[d + 1 :]))
    if words is None and (grid := grids.grid_of(a, quantizer, law, at)) is not None:
        words = grids.encoder(a.shape, quantizer.dtype.bits, law, at)(a, grid)
    elif words is None and one_pass:
        words = encoding.encoder(op, a, quantizer, law, at)(a)
    if words is None:
        fitting.check_values(op, a, None, d, start)
        words = pack_codes(_codes(op, a, quantizer, law, at), at, quantizer.dtype.bits)
    return words


def _codes(op: str, a: Array, quantizer: Quantizer, law: Constants, at: int) -> Array:
    """Return uint8 codes in the shape of x. A quantiser sees groups as an axis, as when it was fitted."""
    out = np.empty(a.shape, np.uint8)
    for (x, constants), (codes, _) in zip(parts.groups_of(a, law, at), parts.groups_of(out, law, at), strict=True):
        _write_codes(op, x, quantizer, constants, codes)
    return out


def _write_codes(op: str, a: Array, quantizer: Quantizer, constants: Constants, out: Array) -> None:
    """Write uint8 codes of x, of few entries of the constants at a time where those have many levels."""
    entries = np.broadcast_shapes((1,) * a.ndim, *(c.shape[lead:] for _, c, lead in constants.items()))
    for key in parts.of_constants(quantizer.dtype, entries):
        elements = parts.elements_of(key, entries)

        def part(c: Array, lead: int, elements: tuple[slice, ...] = elements) -> Array:
            dims = zip(elements, c.shape[lead:], strict=True)
            return c[(slice(None),) * lead + tuple(cut if n > 1 else slice(None) for cut, n in dims)]

        out[elements] = encoding.codes(op, quantizer, a[elements], constants.map(part))


def _named(quantizer: Any) -> str:
    return f"the class {quantizer.__name__}: call it" if isinstance(quantizer, type) else repr(quantizer)
