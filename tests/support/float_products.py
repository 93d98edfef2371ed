"""Oracles: products of float32 matrices with sums in the order of kernels, rounded once for each product."""

import numpy as np

from quantarray.cpu.runtime.isa import FEATURES


def summed(x, w):
    """x [m k] @ w [k n]: a product and its sum are rounded to float32 together where the CPU has such an instruction.

    With the 64 binary digits of an extended float the sum of a product and a float32 value is next to always exact.
    """
    total = np.zeros((len(x), w.shape[1]), np.float32)
    for k in range(len(w)):
        if "fma" in FEATURES:
            exact = x[:, k, None].astype(np.longdouble) * w[k]
            total = (exact + total).astype(np.float32)
        else:
            total = total + x[:, k, None] * w[k]
    return total


def in_lanes(x, values):
    """x [m k] @ values [o k].T in 16 sums: each has every 16th product, and they are added by halves."""
    more = -x.shape[1] % 16
    left, right = (np.pad(a, ((0, 0), (0, more))) for a in (x, values))
    total = np.zeros((len(x), len(values), 16), np.float32)
    for k in range(0, left.shape[1], 16):
        a, b = left[:, None, k : k + 16], right[None, :, k : k + 16]
        total = fused(a, b, total)
    return halved(total)


def halved(total):
    """Add halves of the last axis until one number is left."""
    while total.shape[-1] > 1:
        total = total[..., : total.shape[-1] // 2] + total[..., total.shape[-1] // 2 :]
    return total[..., 0]


def in_groups(x, w, run):
    """x [m k] as int8 of each `run` elements, times codes of w [o k]: exact sums of units, times scales, in 16 sums.

    A unit is 16 elements where x or w has groups of 16, or else 32. w has an offset and a scale of each of its groups,
    or a scale and integer levels.
    """
    (m, k), runs = x.shape, -(-x.shape[1] // run)
    unit = 16 if 16 in (run, w.group) else 32
    length = -(-k // (16 * unit)) * 16 * unit
    parts = np.zeros((m, runs * run), np.float32)
    parts[:, :k] = x
    ends = np.maximum(np.abs(parts.reshape(m, runs, run)).max(axis=2), np.float32(1e-5))
    codes, levels = np.zeros((m, length), np.int64), np.zeros((len(w.codes()), length), np.int64)
    codes[:, :k] = np.rint(parts.reshape(m, runs, run) * (np.float32(127) / ends)[..., None]).reshape(m, -1)[:, :k]
    levels[:, :k] = w.codes() if w.dtype.levels is None else np.array(w.dtype.levels)[w.codes()]
    at = np.arange(0, length, unit)
    shares = (ends / np.float32(127))[:, np.minimum(at // run, runs - 1)]

    def constant(a):
        groups = np.broadcast_to(a, (len(levels), a.shape[1]))
        return groups[:, np.minimum(at // (w.group or k), groups.shape[1] - 1)]

    whole = (codes.reshape(m, 1, -1, unit) * levels.reshape(1, len(levels), -1, unit)).sum(axis=3)
    step = constant(np.ones((1, 1), np.float32) if w.scale is None else w.scale)
    total = np.zeros((m, len(levels), 16), np.float32)
    for n in range(0, len(at), 16):
        part = slice(n, n + 16)
        factor = step[None, :, part] * shares[:, None, part]
        total = fused(whole[..., part].astype(np.float32), factor, total)
        if w.dtype.levels is None:
            sums = codes.reshape(m, -1, unit).sum(axis=2)[:, part].astype(np.float32) * shares[:, part]
            total = fused(constant(w.offset)[None, :, part], sums[:, None], total)
    return halved(total)


def fused(a, b, total):
    """a * b + total in float32, rounded once where the CPU has such an instruction."""
    if "fma" in FEATURES:
        return (a.astype(np.longdouble) * b + total).astype(np.float32)
    return total + a * b
