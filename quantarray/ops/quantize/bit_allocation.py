"""Bits for many tensors under one budget: ActNN's mixed precision (Chen et al., arXiv 2104.14129, section 4)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from ...arrays import checks
from ...core.dtypes import Array
from ...core.format import MAX_BITS

MOST_CELLS = 1 << 28  # of the exact method's table, a byte each


def allocate_bits(
    tensors: Iterable[Any],
    budget: float,
    *,
    sensitivity: Any = None,
    bits: Iterable[int] = (1, 2, 4, 8),
    group: int = 256,
    method: Literal["greedy", "exact"] = "greedy",
) -> Array:
    """Choose bits b_i for each tensor to minimise sum_i C_i / (2**b_i - 1)**2 while sum_i size_i * b_i <= budget.

    tensors: what gets bits of its own: a list of arrays for layers, one array for its rows (samples, or the groups
    of x.reshape(-1, 256)), or a list of sizes in elements. budget: bits in all, without constants: 2 * elements for 2
    bits on average. bits: what b_i may be, of 1 to 8. Returns int64 [tensors].

    Of an array C_i = sensitivity_i * sum over its groups of n * (max - min)**2 / 4: the most that the variances
    p * (1 - p) * step**2 of stochastic rounding (`Grouped`) can sum up to, times what a unit of it costs, by default 1.
    Of a size C_i is its sensitivity.

    method: "greedy" starts at the most bits and lowers, until the budget is met, the tensor whose next step down adds
    least to the sum for a bit saved, as ActNN does. It is optimal where all sizes are equal and `bits` evenly spaced;
    else the last step may save more than it had to. "exact" is dynamic programming over the budget, in units of the
    greatest common divisor of what a step may cost; it takes tensors * budget / unit bytes.

    Raises ValueError where even the fewest bits are too many, where C is not finite or negative, and where the exact
    method's table would have more than 2**28 entries.

    >>> import quantarray as qa
    >>> qa.allocate_bits([100, 100, 100], 900, sensitivity=[1, 20, 500])
    array([1, 4, 4])
    """
    op = "allocate_bits"
    checks.choice(op, "method", method, ("greedy", "exact"))
    steps = _bits(op, bits)
    if not np.iterable(tensors):
        raise TypeError(f"{op}: tensors must be a list of arrays or of sizes, got {checks.kind(tensors)}")
    sizes, c = _problem(op, list(tensors), sensitivity, checks.integer(op, "group", group, 1))
    room = checks.number(op, "budget", budget)
    least = sum(sizes) * steps[0]
    if least > room:
        raise ValueError(
            f"{op}: {sum(sizes)} elements take at least {least} bits, {steps[0]} each, and the budget is {budget}"
        )
    cost = c[:, None] / (2.0 ** np.array(steps) - 1) ** 2
    choice: Any
    if method == "greedy":
        choice = greedy(np.array(sizes, np.int64), cost, np.array(steps), math.floor(room))
    else:
        choice = _exact(sizes, cost, steps, math.floor(room))
    return np.asarray(np.array(steps, np.int64)[choice])


def greedy(sizes: Array, cost: Array, steps: Array, budget: int) -> Array:
    """Choose an index into `steps` for each tensor, of float64 costs [tensors steps] that fall ever more slowly.

    A tensor's steps down cost ever more a bit, so those of all tensors are taken in ascending order. One sort takes
    17 ms for 10,000 tensors of 8 steps, where a heap took 199.
    """
    each = sizes[:, None] * np.diff(steps)
    with np.errstate(divide="ignore", invalid="ignore"):
        rise = np.where(each > 0, (cost[:, :-1] - cost[:, 1:]) / each, np.inf)[:, ::-1].reshape(-1)
    order = np.argsort(rise, kind="stable")
    saved = np.cumsum(each[:, ::-1].reshape(-1)[order])
    needed = int(sizes.sum()) * int(steps[-1]) - budget
    taken = order[: int(np.searchsorted(saved, needed)) + 1] if needed > 0 else order[:0]
    down = np.bincount(taken // max(len(steps) - 1, 1), minlength=len(sizes))
    return np.asarray(len(steps) - 1 - down)


def _exact(sizes: list[int], cost: Array, steps: list[int], budget: int) -> list[int]:
    """Return what `greedy` does, by the best sum that the first tensors can have within each part of the budget."""
    extra = [[size * (b - steps[0]) for b in steps] for size in sizes]  # beyond the fewest bits
    unit = math.gcd(*(e for row in extra for e in row)) or 1
    width = min(budget - sum(sizes) * steps[0], sum(row[-1] for row in extra)) // unit + 1
    if len(sizes) * width > MOST_CELLS:
        raise ValueError(
            f"allocate_bits: the exact method needs a table of {len(sizes)} tensors by {width} units of {unit} bits, "
            f"more than {MOST_CELLS}: take the greedy one, or sizes with a larger common divisor"
        )
    best, choice = np.zeros(width), np.zeros((len(sizes), width), np.uint8)
    for i, row in enumerate(extra):
        least = np.full(width, np.inf)
        for k, e in enumerate(row):
            if e // unit < width:
                taken = best[: width - e // unit] + cost[i, k]
                better = taken < least[e // unit :]
                least[e // unit :][better] = taken[better]
                choice[i, e // unit :][better] = k
        best = least
    at, chosen = width - 1, []
    for i in reversed(range(len(sizes))):
        chosen.append(int(choice[i, at]))
        at -= extra[i][chosen[-1]] // unit
    return chosen[::-1]


def _bits(op: str, bits: Iterable[int]) -> list[int]:
    numbers = list(bits) if np.iterable(bits) else [bits]
    steps = sorted({checks.integer(op, "each of bits", b, 1, MAX_BITS) for b in numbers})
    if not steps:
        raise ValueError(f"{op}: bits must name at least one number of bits")
    return steps


def _problem(op: str, tensors: list[Any], sensitivity: Any, group: int) -> tuple[list[int], Array]:
    """Return sizes and C of the tensors."""
    arrays = [checks.numbers(op, f"tensor {i}", t) for i, t in enumerate(tensors)]
    by_size = {a.ndim == 0 for a in arrays}
    if len(by_size) > 1:
        raise TypeError(f"{op}: tensors must be arrays, or their sizes, not some of both")
    if by_size == {True}:
        if sensitivity is None:
            raise TypeError(f"{op}: sizes need a sensitivity each; arrays have one of their own")
        sizes = [checks.integer(op, f"size {i}", t, 0) for i, t in enumerate(tensors)]
        spread = np.ones(len(sizes))
    else:
        sizes = [a.size for a in arrays]
        spread = np.array([_spread(op, f"tensor {i}", a, group) for i, a in enumerate(arrays)])
    weight = np.ones(len(sizes)) if sensitivity is None else checks.numbers(op, "sensitivity", sensitivity)
    if weight.shape != (len(sizes),):
        raise ValueError(f"{op}: sensitivity must have one number for each of {len(sizes)} tensors, got {weight.shape}")
    with np.errstate(over="ignore", invalid="ignore"):
        c = weight.astype(np.float64) * spread
    if not (np.isfinite(c) & (c >= 0)).all():
        i = int(np.argmin(np.isfinite(c) & (c >= 0)))
        raise ValueError(f"{op}: C must be finite and not negative, but tensor {i} has {c[i]}")
    return sizes, c


def _spread(op: str, name: str, a: Array, group: int) -> float:
    """Bound the sum of variances of a flattened array's elements at one bit."""
    checks.finite(op, name, a)
    flat, total = a.reshape(-1).astype(np.float64), 0.0
    group = min(group, max(flat.size, 1))
    whole = flat.size // group * group
    with np.errstate(over="ignore"):
        for part in (flat[:whole].reshape(-1, group), flat[whole:].reshape(1, -1)):
            if part.size:
                total += part.shape[1] * float((np.ptp(part, axis=1) ** 2).sum()) / 4
    return total
