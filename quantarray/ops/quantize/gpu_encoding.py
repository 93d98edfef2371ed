"""Encode values where they are on a GPU, by thresholds that are found on the host."""

from __future__ import annotations

import math

import numpy as np

from ...arrays.bfloat16 import Bfloat16
from ...backends.registry import contiguous, device_of, empty, kernel, moveaxis, namespace, zeros
from ...core.dtypes import Array, Constants
from ...core.errors import DeviceError
from ...core.format import word_count
from ...core.recordings import is_set
from ...quantizers.base import Quantizer
from . import encoding, fitting, parts


def encode(op: str, x: Array, quantizer: Quantizer, law: Constants, axis: int) -> Array:
    """Return words [bits, *outer, word] of x packed along `axis`, by a scheme without a kernel of its own."""
    bits, device = quantizer.dtype.bits, device_of(x)
    if not x.size:
        return zeros(device, (bits, *x.shape[:axis], *x.shape[axis + 1 :], word_count(x.shape[axis])))
    if not (encoding.taken(x) and (quantizer.monotone or encoding.has_steps(quantizer))):
        raise DeviceError(
            f"{op}: {quantizer} of {x.dtype} has no kernel for {device}, which packs floats and bytes by schemes "
            f"whose codes are steps; move x to the CPU with qa.asnumpy(x)"
        )
    if quantizer.monotone:
        tables = encoding.tables(op, x, quantizer, law, axis)
    else:
        tables = encoding.tables_of_steps(x, _steps(x, quantizer, law, axis), axis)
    if encoding.in_words(x, law, axis):
        words = encoding.by_tables(x, quantizer, tables, law, axis)(x)
    else:
        words = _encode_groups(x, bits, tables, law, axis)
    if words is None:
        fitting.check_values(op, x.widened() if isinstance(x, Bfloat16) else x, None, 0, 0)
    assert words is not None
    return words


def _steps(x: Array, quantizer: Quantizer, law: Constants, axis: int) -> tuple[Array, Array]:
    """Return the cuts of all groups, and the codes between them."""
    steps = [quantizer.steps(part, constants) for part, constants in parts.groups_of(x, law, axis)]
    cuts, codes = zip(*(s for s in steps if s is not None), strict=True)
    return np.concatenate([c if law.group is None else c.squeeze(axis + 2) for c in cuts], axis=axis + 1), codes[0]


def _encode_groups(x: Array, bits: int, tables: tuple[Array, Array], law: Constants, axis: int) -> Array | None:
    """Encode groups that are no whole words as rows of their own, and join the rows; None where x holds a NaN."""
    device, group, length = device_of(x), law.group or 1, x.shape[axis]
    outer = x.shape[:axis] + x.shape[axis + 1 :]
    groups, rows = -(-length // group), math.prod(outer)
    table = encoding.row_tables(tables[0].shape[:-2], outer)
    row = (np.broadcast_to(table, rows)[:, None] * groups + np.arange(groups)).reshape(-1)
    of_groups = (np.ascontiguousarray(t.reshape(-1, 1, t.shape[-1])) for t in tables)
    values = _filled_up(moveaxis(x.bits if isinstance(x, Bfloat16) else x, axis, -1), groups * group)
    nan, apart = zeros(device, (1,), np.bool_), empty(device, (bits, rows * groups, word_count(group)))
    kernel(device, "encode")(values.reshape(-1, group, 1), *of_groups, row, group, nan, apart)
    words = empty(device, (bits * rows, 1, word_count(length)))
    kernel(device, "rebit")(apart.reshape(bits * rows, groups, -1), group, 0, length, words)
    return None if is_set(nan) else words.reshape(bits, *outer, -1)


def _filled_up(x: Array, length: int) -> Array:
    """Repeat the last value of the last axis up to a length: of their codes nothing is kept."""
    more = length - x.shape[-1]
    return contiguous(namespace(device_of(x)).concatenate([x, *[x[..., -1:]] * more], axis=-1) if more else x)
