"""The methods of QuantArray that change shapes; each is the function of its name in `quantarray.ops`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, SupportsIndex

if TYPE_CHECKING:
    from .array import QuantArray
    from .hints import Axes, Values


class Shaping:
    """What `QuantArray` inherits: the same elements in other shapes and orders, on words."""

    __slots__ = ()

    @property
    def T(self: Any) -> QuantArray:
        """The array with its axes reversed; no word moves. Kept, so that `x @ w.T` lays the words of w out once."""
        found: QuantArray = self._cached("T", self.transpose)
        return found

    @property
    def mT(self: Any) -> QuantArray:
        """The array with its last two axes swapped; no word moves."""
        from .ops import views

        return views.matrix_transpose(self)

    def transpose(self: Any, *axes: SupportsIndex | tuple[int, ...] | list[int] | None) -> QuantArray:
        """The axes in another order, reversed by default; a view: no word moves.

        >>> import quantarray as qa, numpy as np
        >>> image = qa.encode(np.ones((2, 8, 9, 3), int), values=(-1, 1))
        >>> image.transpose(0, 3, 1, 2).shape, image.transpose(0, 3, 1, 2).axis
        ((2, 3, 8, 9), 1)
        """
        from .ops import views

        return views.transpose(self, *axes)

    def reshape(self: Any, *shape: Axes) -> QuantArray:
        """Another shape of the same elements in C order.

        A view where unpacked axes alone change, or where packed lengths are multiples of 64; a copy of words
        where the bits of the packed axis must move.

        >>> import quantarray as qa, numpy as np
        >>> qa.encode(np.ones((2, 4, 4, 100), int), values=(-1, 1)).reshape(2, -1).shape
        (2, 1600)
        """
        from .ops import reshaping

        return reshaping.reshape(self, *shape)

    def ravel(self: Any) -> QuantArray:
        """All elements in C order along one axis: `quantarray.ravel`."""
        from .ops import reshaping

        return reshaping.ravel(self)

    def flatten(self: Any) -> QuantArray:
        """`ravel` with words of its own."""
        made: QuantArray = self.ravel().copy()
        return made

    def squeeze(self: Any, axis: Axes | None = None) -> QuantArray:
        """Without axes of length 1: `quantarray.squeeze`."""
        from .ops import views

        return views.squeeze(self, axis)

    def swapaxes(self: Any, axis1: int, axis2: int) -> QuantArray:
        """Two axes change places, no word moves: `quantarray.swapaxes`."""
        from .ops import views

        return views.swapaxes(self, axis1, axis2)

    def take(self: Any, indices: Values, axis: int | None = None) -> QuantArray:
        """Elements of an axis by their numbers: `quantarray.take`."""
        from .ops import taking

        return taking.take(self, indices, axis)

    def repeat(self: Any, repeats: Values, axis: int | None = None) -> QuantArray:
        """Each element of an axis several times: `quantarray.repeat`."""
        from .ops import taking

        return taking.repeat(self, repeats, axis)

    def repack(self: Any, axis: int = -1) -> QuantArray:
        """The same values packed along another axis: `quantarray.repack`."""
        from .ops import repacking

        return repacking.repack(self, axis)
