"""Products of rows of float32 values and packed weights, whose values are computed for some outputs at a time.

They are in L1 or L2 when all rows are multiplied by them; of a few rows, of fewer outputs.
"""

import numpy as np

from ..bits.constants import numbers_of, put_numbers, scratch_of
from ..bits.decode_levels import put_levels
from ..bits.decode_uniform import put_uniform
from ..bits.put_levels import LANES
from ..runtime import threads
from ..runtime.jit import inner
from ..runtime.schedule import Kernel
from .lane_dots import dot_values

_LEAST = 1 << 16  # products that are worth a parallel region
_FEW, _SOME, _MANY = 4, 4, 32  # rows that are few; outputs at a time of few rows, and of more
_ROWS = 96  # that meet the values of some outputs before others do


def row_product(x, values, out):
    if out.size:
        rows = -(-len(x) // _ROWS)
        workers = threads.workers(out.size * max(1, x.shape[1]), _LEAST)
        threads.run(_multiply, (x, values, out, rows), rows * -(-out.shape[1] // _MANY), workers)


@Kernel
def _multiply(x, values, out, tiles, first, last):
    for task in range(first, last):
        row, column = task % tiles * _ROWS, task // tiles * _MANY
        some = values[column : column + _MANY]
        some = values[column : column + _MANY]  # a view costs two atomic operations, for thousands of products
        dot_values(x, row, min(_ROWS, len(x) - row), some, len(some), out, column)


def row_product_spaced(x, words, low, step, first, apart, group, out):
    _run(_multiply_uniform, x, words, (numbers_of(low), numbers_of(step), first, apart, group), out)


def row_product_levels(x, words, levels, row, group, out):
    _run(_multiply_levels, x, words, (levels.view(np.uint32), row, group), out)


def row_product_scaled(x, words, levels, scale, group, out):
    _run(_multiply_scaled, x, words, (levels, numbers_of(scale), group), out)


def _run(kernel, x, words, constants, out):
    if not out.size:
        return
    at_once = _SOME if len(x) <= _FEW else _MANY
    planes, _, count = words.shape
    arguments = x, words.reshape(-1), planes, count, *constants, at_once, out
    workers = threads.workers(out.size * max(1, x.shape[1]), _LEAST)
    threads.run(kernel, arguments, -(-out.shape[1] // at_once), workers)


@Kernel
def _multiply_uniform(x, words, planes, count, low, step, lowest, apart, group, at_once, out, first, last):
    length, outputs, between = x.shape[1], out.shape[1], len(words) // planes
    values, table = np.empty((at_once, length), np.float32), np.empty(32, np.float32)
    codes = np.arange(-64, 16).astype(np.uint8)
    flat = values.reshape(-1)
    steps, lows = np.empty((at_once, step.groups), np.float32), np.empty((at_once, low.groups), np.float32)
    for task in range(first, last):
        column = task * at_once
        some = min(at_once, outputs - column)
        _put_rows(step, column, some, steps)
        _put_rows(low, column, some, lows)
        for c in range(some):
            put_uniform(
                words, (column + c) * count, between, planes, lows, steps, lowest, apart, c, group, 0, length, codes,
                table, flat, c * length,
            )  # fmt: skip
        dot_values(x, 0, len(x), values, some, out, column)


@inner
def _put_rows(numbers, column, some, to):
    """Write the constants of some outputs, [some groups]."""
    flat, scratch = to.reshape(-1), np.empty(scratch_of(numbers), np.float32)
    if numbers.groups:
        for c in range(some):
            put_numbers(numbers, column + c, 0, numbers.groups, 1, scratch, flat, c * numbers.groups)


@Kernel
def _multiply_levels(x, words, planes, count, levels, row, group, at_once, out, first, last):
    length, outputs, between = x.shape[1], out.shape[1], len(words) // planes
    values, codes, chosen = np.empty((at_once, length), np.float32), np.empty(64, np.uint8), np.empty(32, np.uint32)
    flat = values.reshape(-1).view(np.uint32)
    for task in range(first, last):
        column = task * at_once
        some = min(at_once, outputs - column)
        for c in range(some):
            o = column + c
            table = row[min(o, row.size - 1)]
            put_levels(
                words, o * count, between, planes, levels, table, group, 0, length, codes, chosen, flat, c * length
            )
        dot_values(x, 0, len(x), values, some, out, column)


@Kernel
def _multiply_scaled(x, words, planes, count, levels, scale, group, at_once, out, first, last):
    length, outputs, between = x.shape[1], out.shape[1], len(words) // planes
    values, codes, chosen = np.empty((at_once, length), np.float32), np.empty(64, np.uint8), np.empty(32, np.uint32)
    table = np.zeros((1, scale.groups, max(len(levels), LANES)), np.float32)
    flat, bits = values.reshape(-1).view(np.uint32), table.view(np.uint32)
    scales = np.empty((at_once, scale.groups), np.float32)
    for task in range(first, last):
        column = task * at_once
        some = min(at_once, outputs - column)
        _put_rows(scale, column, some, scales)
        for c in range(some):
            o = column + c
            for part in range(scale.groups):
                for code in range(len(levels)):
                    table[0, part, code] = scales[c, part] * levels[code]  # in float64
            put_levels(words, o * count, between, planes, bits, 0, group, 0, length, codes, chosen, flat, c * length)
        dot_values(x, 0, len(x), values, some, out, column)
