"""The methods of QuantArray that change shapes; each is the function of its name in `quantarray.ops`."""

from __future__ import annotations

from typing import Any, SupportsIndex

from ..arrays.array import QuantArray
from ..core.hints import Axes, Values
from ..ops.manipulation import repacking, reshaping, taking, views


class Shaping:
    """A mixin of the same elements in other shapes and orders, on words."""

    __slots__ = ()

    @property
    def T(self: Any) -> QuantArray:
        """Return the array with its axes reversed; no word moves. Cached, so that `x @ w.T` lays the words of w out
        once; not with super-blocks, which the result has as float32."""
        if self.constants.super_blocks:
            return views.transpose(self)
        transposed: QuantArray = self._cached("T", self.transpose)
        return transposed

    @property
    def mT(self: Any) -> QuantArray:
        """Return the array with its last two axes swapped; no word moves."""
        return views.matrix_transpose(self)

    def transpose(self: Any, *axes: SupportsIndex | tuple[int, ...] | list[int] | None) -> QuantArray:
        """Reorder the axes, reversed by default; a view: no word moves.

        >>> import quantarray as qa, numpy as np
        >>> image = qa.encode(np.ones((2, 8, 9, 3), int), values=(-1, 1))
        >>> image.transpose(0, 3, 1, 2).shape, image.transpose(0, 3, 1, 2).axis
        ((2, 3, 8, 9), 1)
        """
        return views.transpose(self, *axes)

    def reshape(self: Any, *shape: Axes) -> QuantArray:
        """Return the same elements in C order in another shape.

        A view where unpacked axes alone change, or where packed lengths are multiples of 64; a copy of words
        where the bits of the packed axis must move.

        >>> import quantarray as qa, numpy as np
        >>> qa.encode(np.ones((2, 4, 4, 100), int), values=(-1, 1)).reshape(2, -1).shape
        (2, 1600)
        """
        return reshaping.reshape(self, *shape)

    def ravel(self: Any) -> QuantArray:
        """Return all elements in C order along one axis: `quantarray.ravel`."""
        return reshaping.ravel(self)

    def flatten(self: Any) -> QuantArray:
        """Return `ravel` with words of its own."""
        flat: QuantArray = self.ravel().copy()
        return flat

    def squeeze(self: Any, axis: Axes | None = None) -> QuantArray:
        """Remove axes of length 1: `quantarray.squeeze`."""
        return views.squeeze(self, axis)

    def swapaxes(self: Any, axis1: int, axis2: int) -> QuantArray:
        """Swap two axes; no word moves: `quantarray.swapaxes`."""
        return views.swapaxes(self, axis1, axis2)

    def take(self: Any, indices: Values, axis: int | None = None) -> QuantArray:
        """Take elements of an axis by their indices: `quantarray.take`."""
        return taking.take(self, indices, axis)

    def repeat(self: Any, repeats: Values, axis: int | None = None) -> QuantArray:
        """Repeat each element of an axis: `quantarray.repeat`."""
        return taking.repeat(self, repeats, axis)

    def planes(self: Any) -> tuple[QuantArray, ...]:
        """Return the bits of each code as uint1 arrays, views of the words: `quantarray.planes`."""
        return views.planes(self)

    def repack(self: Any, axis: int = -1) -> QuantArray:
        """Pack the same values along another axis: `quantarray.repack`."""
        return repacking.repack(self, axis)
