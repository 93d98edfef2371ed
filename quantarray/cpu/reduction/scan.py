"""Run operations that need elements in order: lines of codes, read one by one from their words.

A line is a row along the packed axis, or with `lanes` one element of it along the folds: the same loops serve both.
"""

import numpy as np

from ..runtime.jit import entry, inner


def argmax(words, length, levels, row, group, floor, lanes, out):
    if out.size:
        _argmax(words, length, levels, row, group, floor, lanes, out)


def cumulate(words, length, levels, row, group, lanes, out):
    if out.size:
        _cumulate(words, length, levels, row, group, levels.dtype.type(0), lanes, out)


def argsort(words, length, ranks, row, group, lanes, out):
    if out.size:
        _argsort(words, length, ranks, int(ranks.max()) + 1, row, group, lanes, out)


def sort(words, length, order, row, group, lanes, out):
    if out.size:
        _sort(words, length, order, row, group, lanes, out)


@inner
def _code(words, r, f, i):
    """Return the code of element i of the packed axis."""
    code, shift = np.uint64(0), np.uint64(i & 63)
    for plane in range(words.shape[0]):
        code |= ((words[plane, r, f, i >> 6] >> shift) & np.uint64(1)) << np.uint64(plane)
    return np.int64(code)


@inner
def _value(words, r, f, i, levels, row, group):
    """Map a code through its table: levels[tables groups codes], `row` naming the tables of [rows folds], or one of
    all.
    """
    table = row[r * words.shape[2] + f] if row.size > 1 else row[0]
    return levels[table, i // group if levels.shape[1] > 1 else 0, _code(words, r, f, i)]


@entry
def _argmax(words, length, levels, row, group, floor, lanes, out):
    rows, lines = out.shape
    steps = words.shape[2] if lanes else length
    most = levels.max()  # nothing after it is larger
    for r in range(rows):
        for line in range(lines):
            best, place = floor, -1
            for j in range(steps):
                f, i = (j, line) if lanes else (0, j)
                value = _value(words, r, f, i, levels, row, group)
                if value > best:
                    best, place = value, j
                    if best == most:
                        break
            out[r, line] = place


@entry
def _cumulate(words, length, levels, row, group, zero, lanes, out):
    rows, folds, _ = out.shape
    lines, steps = (length, folds) if lanes else (1, length)
    for r in range(rows):
        for line in range(lines):
            total = zero
            for j in range(steps):
                f, i = (j, line) if lanes else (0, j)
                total += _value(words, r, f, i, levels, row, group)
                out[r, f, i] = total


@entry
def _argsort(words, length, ranks, count, row, group, lanes, out):
    """Sort by counting: find where each rank begins, then put each element in its place."""
    rows, folds, _ = out.shape
    lines, steps = (length, folds) if lanes else (1, length)
    place = np.zeros(count + 1, np.int64)
    for r in range(rows):
        for line in range(lines):
            place[:] = 0
            for j in range(steps):
                f, i = (j, line) if lanes else (0, j)
                place[_value(words, r, f, i, ranks, row, group) + 1] += 1
            for rank in range(count):
                place[rank + 1] += place[rank]
            for j in range(steps):
                f, i = (j, line) if lanes else (0, j)
                rank = _value(words, r, f, i, ranks, row, group)
                at = place[rank]
                place[rank] += 1
                if lanes:
                    out[r, at, i] = j
                else:
                    out[r, f, at] = j


@entry
def _sort(words, length, order, row, group, lanes, out):
    """Count the codes, then write them in order; `out` is zero on entry."""
    planes, rows, folds, _ = words.shape
    lines, steps = (length, folds) if lanes else (1, length)
    counts = np.zeros(1 << planes, np.int64)
    for r in range(rows):
        table = row[r * folds] if row.size > 1 else row[0]
        for line in range(lines):
            counts[:] = 0
            for j in range(steps):
                f, i = (j, line) if lanes else (0, j)
                counts[_code(words, r, f, i)] += 1
            j = 0
            for rank in range(order.shape[2]):
                code = order[table, line // group if order.shape[1] > 1 else 0, rank]
                for _ in range(counts[code]):
                    f, i = (j, line) if lanes else (0, j)
                    for plane in range(planes):
                        out[plane, r, f, i >> 6] |= ((np.uint64(code) >> np.uint64(plane)) & np.uint64(1)) << np.uint64(
                            i & 63
                        )
                    j += 1
