"""ABC-Net: weights as masks at fixed deviations from the mean, activations as shifted steps."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..core.dtypes import Array, Constants, DType, basis
from ..core.format import MAX_BITS
from .base import Quantizer, fitted_axes, float_rows, least_float, numbers, ones_like_reduced, passed, real_rows
from .planes import plus_minus
from .rows import SQUARES, row_means, row_sums


class ABC(Quantizer):
    """x ~ sum_m alpha_m * B_m, B_m = sign(x - (mean - u_m * std)), u_m = -1 + 2 * (m - 1) / (masks - 1).

    alpha minimises the squared error (Lin, Zhao, Pan, ABC-Net, arXiv 1711.11294); one mask has u = 0. Bit m - 1 of a
    code is (B_m + 1) / 2, so the basis law has scale 2 * alpha and offset -sum alpha. Mean and standard deviation
    are those of the values that share constants, and an element's code depends on them all: codes are not those of
    the nearest level.

    The sign of 0 is +1. An array of one value decodes to itself, rounded to float32; a mask that equals another adds
    nothing, its alpha is 0. Of nothing at all alpha is 1, 0, 0, ... Infinities, values beyond float32 and those
    whose scale is, are refused.

    >>> import quantarray as qa, numpy as np
    >>> q = qa.quantize(np.float32([-3, -1, 1, 3]), qa.ABC(2))
    >>> q.scale.ravel(), q.codes(), q.dequantize()
    (array([3., 3.], dtype=float32), array([0, 2, 2, 3], dtype=uint8), array([-3.,  0.,  0.,  3.], dtype=float32))
    """

    anywhere = True

    def __init__(self, masks: int) -> None:
        if isinstance(masks, bool) or not isinstance(masks, (int, np.integer)) or not 1 <= masks <= MAX_BITS:
            raise ValueError(f"ABC: masks must be an integer from 1 to {MAX_BITS}, got {masks!r}")
        self.masks = int(masks)

    @property
    def dtype(self) -> DType:
        return basis(self.masks)

    @property
    def fixed(self) -> bool:
        return False

    @property
    def shifts(self) -> list[float]:
        """u, ascending."""
        return [-1 + 2 * m / (self.masks - 1) for m in range(self.masks)] if self.masks > 1 else [0.0]

    def fit(self, x: Array, axes: tuple[int, ...]) -> Constants:
        rows = real_rows("ABC", x, axes)
        count, total = row_sums(rows, cuts=self._cuts(rows))
        return plus_minus("ABC", self._alpha(count.T, total.T), ones_like_reduced(x, axes))

    def steps(self, x: Array, constants: Constants) -> tuple[Array, Array]:
        """Return the cuts of nested masks: a value that passes one of them passes those of larger shifts."""
        axes, passing = fitted_axes(constants), np.arange(self.masks + 1)
        cuts = self._cuts(float_rows(x, axes)).T.reshape(self.masks, *ones_like_reduced(x, axes))
        return cuts, ((1 << passing) - 1 << self.masks - passing).astype(np.uint8)

    def _cuts(self, rows: Array) -> Array:
        """float64 [channels masks]: mean - u * std, ascending."""
        mean = row_means(rows)
        std = np.sqrt(row_means(rows, SQUARES, mean))
        return np.asarray(mean[:, None] - np.array(self.shifts[::-1]) * std[:, None])

    def _alpha(self, count: Array, total: Array) -> Array:
        """Fit alpha [channels masks] by least squares to [masks + 1 channels]: how many values pass j masks, their sum.

        Masks are nested, so the masks + 1 codes that occur are steps up from all -1 to all +1, and only the first
        and the last step's levels depend on each other, as -a and +a. Every other level is its elements' mean. This
        is the solution of the normal equations, and needs no matrix that would be singular where masks coincide.
        """
        steps = range(self.masks + 1)
        mean = total / np.maximum(count, 1)
        last = np.ones(count.shape[1])
        for j in steps[1:-1]:  # where no element has one of the outer codes, any level will do
            last = np.where(count[j] > 0, mean[j], last)
        ends = count[0] + count[-1]
        last = np.where(ends > 0, (total[-1] - total[0]) / np.maximum(ends, 1), last)
        level = [-last]
        for j in steps[1:-1]:
            level.append(np.where(count[j] > 0, mean[j], level[-1]))
        return np.diff([*level, last], axis=0)[::-1].T / 2

    def encode(self, x: Array, constants: Constants) -> Array:
        cuts, codes = self.steps(x, constants)
        return np.asarray(codes[passed(x, cuts)])

    def __repr__(self) -> str:
        return f"ABC({self.masks})"


class ABCActivations(Quantizer):
    """x ~ sum_n betas[n] * H_n, H_n = +1 where clip(x + shifts[n], 0, 1) >= 0.5, else -1.

    Shifts and betas are trained (ABC-Net, arXiv 1711.11294), so nothing is fitted. Bit n of a code is (H_n + 1) / 2;
    the basis law has scale 2 * betas and offset -sum betas. x + shift is computed in float64, and where it is 0.5
    H is +1. Infinities are on their side of every step. Codes are not those of the nearest level, and encoding
    decoded values may give others.

    >>> import quantarray as qa, numpy as np
    >>> q = qa.quantize(np.float32([-0.5, -0.4, 1.4, 1.5]), qa.ABCActivations([-1, 1], [1, 1]))
    >>> q.codes(), q.dequantize()
    (array([2, 2, 2, 3], dtype=uint8), array([0., 0., 0., 2.], dtype=float32))
    """

    pointwise = True
    anywhere = True

    def __init__(self, shifts: Sequence[float] | Array, betas: Sequence[float] | Array) -> None:
        self.shifts = numbers("ABCActivations", "shifts", shifts, 1, MAX_BITS)
        self.betas = numbers("ABCActivations", "betas", betas, 1, MAX_BITS)
        if len(self.shifts) != len(self.betas):
            raise ValueError(
                f"ABCActivations: needs one beta a shift, got {len(self.shifts)} shifts and {len(self.betas)} betas"
            )
        plus_minus("ABCActivations", np.array([self.betas]), ())
        self.monotone = min(self.betas) >= 0

    @property
    def dtype(self) -> DType:
        return basis(len(self.shifts))

    @property
    def fixed(self) -> bool:
        return True

    def fit(self, x: Array, axes: tuple[int, ...]) -> Constants:
        shape = ones_like_reduced(x, axes)
        betas = np.tile(np.array(self.betas), (math.prod(shape), 1))
        return plus_minus("ABCActivations", betas, shape)

    def steps(self, x: Array, constants: Constants) -> tuple[Array, Array]:
        order = np.argsort(self.shifts)[::-1]  # the larger a shift, the lower its step
        shifts = np.array(self.shifts)[order].reshape(-1, *(1,) * x.ndim)
        cuts = least_float(lambda v: v + shifts >= 0.5, shifts.shape)
        assert constants.offset is not None
        cuts = np.broadcast_to(cuts, (len(cuts), *constants.offset.shape))
        return cuts, np.append(0, (1 << order).cumsum()).astype(np.uint8)

    def encode(self, x: Array, constants: Constants) -> Array:
        codes = np.zeros(x.shape, np.uint8)
        for n, shift in enumerate(self.shifts):
            codes |= (x.astype(np.float64) + shift >= 0.5).astype(np.uint8) << np.uint8(n)
        return codes

    def __repr__(self) -> str:
        return f"ABCActivations({list(self.shifts)}, {list(self.betas)})"
