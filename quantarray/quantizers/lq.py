"""Learned bases: levels are the sums, with signs or without, of the numbers of a basis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from ..core.code_values import level_values
from ..core.dtypes import Array, Constants, DType, basis
from .base import Quantizer, bits_of, float32, float_rows, is_positive, nearest_code, numbers, ones_like_reduced
from .least_squares import least_squares_grid
from .planes import plus_minus
from .rows import SQUARES, SortedRows, on_device_of, row_ends, row_means, row_sums

RIDGE, ITERATIONS = 1e-8, 256
_SAMPLE = 1 << 12  # values a channel that a grid to start from is fitted to
_QUARTILE = 0.6745  # of the normal distribution
_ROWS = 512  # fitted at once: at 8 bits a row takes 16 KiB beside its elements
# Further starts, as (ratio of neighbours in the basis, their sum in standard deviations). On normal values the first
# ends best of 300 random ones at 3 and at 4 bits; the others are for values of other distributions.
_STARTS = ((1.6, 1.75), (1.4, 1.25), (2.0, 1.75), (1.8, 1.25), (2.5, 1.0), (1.4, 2.5), (3.0, 2.0))


class LQ(Quantizer):
    """Quantise to levels v . e: e in {-1, 1}**bits for weights, {0, 1}**bits for `activations`; v is fitted to values.

    LQ-Nets (Zhang et al., arXiv 1807.10029). `qem` descends from v_j = 0.6745 * s * 2**j / 2**(bits - 1), s the root
    mean square; for activations from v_j = 2 * 0.6745 * s * 2**j / (2**bits - 1), s**2 twice the mean square, which
    is that of normal values before a ReLU. With `starts` up to 8 it descends from others too, and takes the least
    error. `basis` gives v instead, for instance a `moving_average` kept in training. Bit j of a code is that of v_j:
    the law has scale 2v and offset -sum v, or scale v and offset 0.

    `center=True` has levels c + v . e, c one more number of the least squares: offset c - sum v, or c. Values are
    then measured from their mean (of activations from the smallest), where every descent starts with c = 0; one more
    starts from the even levels of `least_squares_grid`, which take as long to find as `Uniform(bits, symmetric=False,
    mse=True)` does: long, for thousands of channels. A `basis` then has c after v. This is not part of LQ-Nets.

    Codes are those of the nearest level, on a tie the upper one. A fitted v ascends, without signs in {-1, 1}. An
    array of one value decodes to itself, rounded to float32, by the last v alone, or by c. For an empty array, v is
    where `qem` would start with s = 1. Infinities need a given `basis`. Values beyond float32, and those whose scale
    is, are refused.

    >>> import quantarray as qa, numpy as np
    >>> q = qa.quantize(np.float32([-6, -4, -1, 1, 4, 6]), qa.LQ(2))
    >>> q.scale.ravel(), q.codes(), q.dequantize().tolist()
    (array([4., 6.], dtype=float32), array([0, 0, 1, 2, 3, 3], dtype=uint8), [-5.0, -5.0, -1.0, 1.0, 5.0, 5.0])
    >>> q = qa.quantize(np.float32([4, 6, 9, 11, 14, 16]), qa.LQ(2, center=True))
    >>> q.scale.ravel().round(4), q.offset.round(4), q.dequantize().round(4).tolist()
    (array([4., 6.], dtype=float32), array([5.], dtype=float32), [5.0, 5.0, 9.0, 11.0, 15.0, 15.0])
    """

    nearest = True
    idempotent = True
    monotone = True
    pointwise = True
    anywhere = True

    def __init__(
        self,
        bits: int,
        activations: bool = False,
        starts: int = 1,
        basis: Sequence[float] | Array | None = None,
        ridge: float = RIDGE,
        iterations: int = ITERATIONS,
        center: bool = False,
    ) -> None:
        for name, n, most in (("starts", starts, 1 + len(_STARTS)), ("iterations", iterations, 10**9)):
            if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or not 1 <= n <= most:
                raise ValueError(f"LQ: {name} must be an integer from 1 to {most}, got {n!r}")
        for name, yes in (("activations", activations), ("center", center)):
            if not isinstance(yes, (bool, np.bool_)):
                raise ValueError(f"LQ: {name} must be True or False, got {yes!r}")
        if not is_positive(ridge):
            raise ValueError(f"LQ: ridge must be a positive float32, got {ridge!r}")
        self.bits, self.starts, self.iterations = bits_of("LQ", bits), int(starts), int(iterations)
        self.activations, self.ridge, self.center = bool(activations), float(ridge), bool(center)
        name, count = ("basis followed by its center", self.bits + 1) if self.center else ("basis", self.bits)
        self.basis = None if basis is None else numbers("LQ", name, basis, count, count)

    @property
    def dtype(self) -> DType:
        return basis(self.bits)

    @property
    def fixed(self) -> bool:
        return self.basis is not None

    def fit(self, x: Array, axes: tuple[int, ...]) -> Constants:
        shape = ones_like_reduced(x, axes)
        if self.basis is not None:
            v = np.tile(np.array(self.basis), (math.prod(shape), 1))
        else:
            v = self._fit(float_rows(x, axes))
        v, center = v[:, : self.bits], v[:, self.bits :].sum(axis=1)
        if not self.activations:
            return plus_minus("LQ", v, shape, center)
        ends = np.minimum(v, 0).sum(axis=1) + center, np.maximum(v, 0).sum(axis=1) + center
        float32("LQ", "level", np.stack(ends))
        scale, offset = float32("LQ", "scale", v.T), float32("LQ", "offset", center)
        return Constants(scale.reshape(self.bits, *shape), offset.reshape(shape))

    def _fit(self, x: Array) -> Array:
        """v [channels bits] for rows x, followed by the center if there is one."""
        if not x.size:
            return np.tile(self._start(0, np.ones(1)), (len(x), 1))
        if len(x) > _ROWS:  # rows of few elements, whose sums take 8 * 2**bits * bits bytes each
            return np.concatenate([self._fit(x[i : i + _ROWS]) for i in range(0, len(x), _ROWS)])
        low, high = row_ends(x)
        float32("LQ", "value", np.stack([low, high]))
        origin = np.zeros(len(x))
        if self.center:  # differences are exact enough in float64 where squares of the values are not
            origin = low if self.activations else row_means(x)
            x = x - on_device_of(x, origin[:, None])
        rows = SortedRows(x)
        best, least = np.zeros((len(x), self.bits + self.center)), np.full(len(x), np.inf)
        for v in self._start_points(rows):
            *_, (v, error) = qem(rows, v, self.activations, self.ridge, self.iterations, self.center)
            better = error < least
            best, least = np.where(better[:, None], v, best), np.where(better, error, least)
        best = self._ascending(best)
        alone = np.zeros_like(best)
        alone[:, -1] = high if self.activations or self.center else np.abs(high)
        best[:, self.bits :] += origin[:, None]
        return np.where((low == high)[:, None], alone, best)

    def _ascending(self, v: Array) -> Array:
        """Return an ascending basis of equal levels; without signs, unless activations lack a center."""
        v, center = v[:, : self.bits], v[:, self.bits :]
        if self.activations and self.center:
            center = center + np.minimum(v, 0).sum(axis=1, keepdims=True)
        unsigned = self.center or not self.activations
        return np.hstack([np.sort(np.abs(v) if unsigned else v, axis=1), center])

    def _start_points(self, rows: SortedRows) -> Iterator[Array]:
        """Yield each v [channels bits] that `qem` descends from, followed by the center if there is one."""
        size = np.sqrt(row_means(rows.values, SQUARES))
        yield from (self._start(start, size) for start in range(self.starts))
        if self.center:
            step, low = least_squares_grid(rows.sample(_SAMPLE), 2**self.bits)
            v = step[:, None] * 2.0 ** np.arange(self.bits)
            yield np.column_stack([v, low] if self.activations else [v / 2, low + v.sum(axis=1) / 2])

    def _start(self, start: int, size: Array) -> Array:
        """v [channels bits] to start from, for values of root mean square `size`; the center, if any, is 0."""
        published = 2.0, _QUARTILE * (2 if self.activations else 2 - 2.0 ** (1 - self.bits))
        ratio, top = _STARTS[start - 1] if start else published
        v = ratio ** np.arange(self.bits)
        deviation = size * np.sqrt(2) if self.activations else size
        return np.pad(deviation[:, None] * (top / v.sum()) * v, ((0, 0), (0, int(self.center))))

    def encode(self, x: Array, constants: Constants) -> Array:
        levels = level_values(self.dtype, constants)
        order = np.argsort(levels, axis=0, kind="stable").astype(np.uint8)
        rank = nearest_code(x, np.take_along_axis(levels, order.astype(np.intp), 0))
        if order.size == len(order):
            return order.reshape(-1)[rank]
        return np.asarray(np.take_along_axis(order, rank[None].astype(np.intp), 0)[0])

    def __repr__(self) -> str:
        usual = {"activations": False, "starts": 1, "basis": None, "ridge": RIDGE, "iterations": ITERATIONS}
        usual["center"] = False
        settings = {name: getattr(self, name) for name in usual}
        settings["basis"] = None if self.basis is None else list(self.basis)
        return f"LQ({self.bits}{''.join(f', {n}={v}' for n, v in settings.items() if v != usual[n])})"


def moving_average(old: Array, new: Array, momentum: float = 0.9) -> Array:
    """momentum * old + (1 - momentum) * new in float64, whatever the dtypes: a basis kept over training steps.

    >>> moving_average(np.array([1, 2]), np.array([2, 4]))
    array([1.1, 2.2])
    """
    return momentum * np.asarray(old, np.float64) + (1 - momentum) * np.asarray(new, np.float64)


def qem(
    x: Array | SortedRows,
    v: Array,
    activations: bool = False,
    ridge: float = RIDGE,
    iterations: int = ITERATIONS,
    center: bool = False,
) -> Iterator[tuple[Array, Array]]:
    """(v, mean squared error) after each half-step of the quantisation error minimisation of LQ-Nets.

    x [channels elements], v float64 [channels bits], with `center` one more column, which is added to every level. One
    half-step takes the nearest levels, the next moves v to

        argmin |x - B v|**2 + ridge * elements * |v - v_before|**2,    B the signs (or bits) of the codes, and ones

    so the error never rises, and a number that no code depends on stays. The ridge is that of the authors' code.
    It ends where codes stay, each channel for itself, or after `iterations` pairs of half-steps.

    >>> [float(error.round(4)[0]) for _, error in qem(np.array([[-3.0, -1, 1, 4]]), np.array([[1.0, 1.5]]))]
    [0.75, 0.125, 0.125]
    """
    rows = x if isinstance(x, SortedRows) else SortedRows(float_rows(x, (1,)))
    squares = row_sums(rows.values, SQUARES)[1][:, 0]
    v = np.array(v, np.float64)
    width = v.shape[1]
    bits = width - center
    e = (np.arange(2**bits)[:, None] >> np.arange(bits) & 1).astype(np.float64)  # [codes bits]
    e = e if activations else 2 * e - 1
    e = np.pad(e, ((0, 0), (0, int(center))), constant_values=1)
    pairs = (e[:, :, None] * e[:, None, :]).reshape(len(e), -1)
    ridges = ridge * rows.length * np.eye(width)
    before = np.full((len(v), len(e)), -1)
    for _ in range(iterations):
        count, total = _cells(rows, (v[:, None] * e).sum(axis=2))
        # Counts are integers, so this product is exact in any order; sums are not, and each row adds up its own
        gram = (count @ pairs).reshape(-1, width, width)
        moment = (total[:, None] * e.T).sum(axis=2)
        yield v, _error(squares, rows.length, gram, moment, v)
        moved = (count != before).any(axis=1)
        if not moved.any():
            return
        before = count
        step = np.linalg.solve(gram + ridges, (moment - (gram * v[:, None]).sum(axis=2))[:, :, None])[:, :, 0]
        v = np.where(moved[:, None], v + step, v)
        yield v, _error(squares, rows.length, gram, moment, v)


def _cells(rows: SortedRows, levels: Array) -> tuple[Array, Array]:
    """Count the elements nearest to each level, and sum them: float64 [channels codes]."""
    order = np.argsort(levels, axis=1, kind="stable")
    levels = np.take_along_axis(levels, order, 1)
    below, sums, *_ = rows.below((levels[:, 1:] + levels[:, :-1]) / 2)
    ends = np.full((len(levels), 1), rows.length)
    count, total = np.empty(levels.shape), np.empty(levels.shape)
    np.put_along_axis(count, order, np.diff(below, axis=1, prepend=0, append=ends), 1)
    np.put_along_axis(total, order, np.diff(sums, axis=1, prepend=0, append=rows.total[:, None]), 1)
    return count, total


def _error(squares: Array, length: int, gram: Array, moment: Array, v: Array) -> Array:
    square = squares - 2 * (moment * v).sum(axis=1) + ((gram * v[:, None]).sum(axis=2) * v).sum(axis=1)
    return np.asarray(np.maximum(square, 0) / length)
