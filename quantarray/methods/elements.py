"""The methods of QuantArray that read elements, move words, or answer NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn, overload

import numpy as np

from .. import numpy_protocol
from ..arrays import canonical
from ..arrays.array import QuantArray
from ..core.dtypes import Array
from ..core.hints import Index
from ..ops.manipulation import indexing, repacking
from ..ops.words import conversion, membership, placement
from .notebook import html

_BLOCK = 1 << 14  # elements that an iterator unpacks at a time
_MISSING = {
    "__array_namespace__": "quantarray is no namespace of the array API standard, whose dtypes and promotion it lacks: "
    "call its functions (docs/array-api.md lists them), or .dequantize() for an array that has one",
}
# Functions that the package imports when they are asked for
_LATER = {"compare": "compare(q, quantizers)", "explain": "explain(function, q, ..)"}
_PLANES = ".words[k] has bit-plane k, 64 elements a word"
_OTHER_WORDS = {"plane": _PLANES, "planes": _PLANES, "law": ".dtype names it, .constants has its numbers"}


class Elements:
    """A mixin of codes, values and items; files' digest; NumPy's protocols; HTML for notebooks."""

    __slots__ = ()

    def codes(self: Any) -> Array:
        """Return the codes, uint8, in the logical shape.

        >>> import quantarray as qa
        >>> qa.encode([3, 0, 2], values=range(4)).codes()
        array([3, 0, 2], dtype=uint8)
        """
        return conversion.codes(self)

    def dequantize(self: Any, out: Any = None) -> Array:
        """Return the values: int32 where the levels are integers without a scale, else float32.

        out: a writeable array of q's shape on its device, NumPy's, CuPy's or a PyTorch tensor, that takes them: of that
        type, float32, float16 or bfloat16, to which they are rounded as float32. Its memory is returned, as an array of
        NumPy or CuPy; of bfloat16, which these lack, as bits in uint16. Raises TypeError for another.

        >>> import quantarray as qa, numpy as np
        >>> qa.quantize(np.float32([0.5, -1.5, 1.0]), qa.Sign(scale=True)).dequantize()
        array([ 1., -1.,  1.], dtype=float32)
        >>> out = np.empty(2, np.int32)
        >>> _ = qa.encode([3, 0], values=range(4)).dequantize(out=out)
        >>> out
        array([3, 0], dtype=int32)
        """
        return conversion.dequantize(self, out)

    @overload
    def __getitem__(self, key: tuple[int | np.integer[Any], ...]) -> Any: ...  # a value, if an integer for each axis
    @overload
    def __getitem__(self, key: Index | QuantArray | tuple[Index | QuantArray, ...]) -> QuantArray: ...
    def __getitem__(self: Any, key: Any) -> Any:
        """Index as NumPy does, by integers, slices, ..., None, and by arrays of integers and masks, packed ones too.

        Slices of unpacked axes and slices of the packed one that begin and end on words are views; other slices of
        the packed axis copy words, arrays what they name. An integer on the packed axis leaves the last
        other axis packed, integers on all axes give the value as a NumPy scalar. Type checkers, which do not know how
        many axes there are, take q[0] for an array.

        >>> import quantarray as qa, numpy as np
        >>> q = qa.encode(np.arange(12).reshape(3, 4) % 4, values=range(4))
        >>> q[1:, ::-1].shape, q[-1].dequantize(), q[[0, 2], 3].dequantize(), q[0, 3]
        ((2, 4), array([0, 1, 2, 3], dtype=int32), array([3, 3], dtype=int32), np.int32(3))
        >>> q[q > 1].dequantize()
        array([2, 3, 2, 3, 2, 3], dtype=int32)
        """
        near = self._near
        if near is not None and type(key) is int and 0 <= key - near[0] < len(near[1]):
            return near[1][key - near[0]]
        return indexing.getitem(self, key)

    def __contains__(self: Any, value: Any) -> bool:
        """Return True if an element has this value.

        >>> import quantarray as qa
        >>> q = qa.encode([1, 1], values=(-1, 1))
        >>> 1 in q, -1 in q, 0 in q
        (True, False, False)
        """
        return membership.contains(self, value)

    def __iter__(self: Any) -> Iterator[QuantArray]:
        """Iterate over arrays along the first axis; of one axis over the values, as NumPy scalars.

        >>> import quantarray as qa
        >>> sum(qa.encode([3, 0, 2], values=range(4))), [row.shape for row in qa.ones((2, 5))]
        (np.int32(5), [(5,), (5,)])
        """
        return _values(self) if self.ndim == 1 else _rows(self)

    def __bool__(self: Any) -> bool:
        """Return the truth of the only element, as in NumPy; of no or several it is ambiguous."""
        if self.size == 1:
            return bool(self.dequantize().item())
        raise ValueError(
            f"the truth value of a packed array of {self.size} elements is ambiguous: use array_equal(), codes() or "
            f"dequantize()"
        )

    def to_device(self: Any, device: str) -> QuantArray:
        """Return this array on another device; itself if it is there already.

        Constants stay on the host, and `SuperBlocks` as they are; products on a GPU read their values, float32.

        >>> import quantarray as qa
        >>> qa.encode([1, -1], values=(-1, 1)).to_device("cpu").device
        'cpu'
        """
        return placement.move(self, device)

    def digest(self: Any) -> str:
        """Return sixteen bytes in hex of shape, packed axis, dtype, constants and codes; docs/format.md has the recipe.

        Copies, views and files of an array have its digest. `array_equal` compares values only: arrays that it
        calls equal have different digests where their dtypes or packed axes differ.

        >>> import quantarray as qa
        >>> a, b = qa.encode([1, -1], values=(-1, 1)), qa.encode([1, 1], values=(-1, 1))
        >>> a.digest() == a.copy().digest(), a.digest() == b.digest()
        (True, False)
        """
        return canonical.digest(self)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Apply ufuncs that mean the same on levels, and reductions by them; others are refused by name.

        >>> import quantarray as qa, numpy as np
        >>> np.tanh(qa.encode([1, -1], values=(-1, 1))).dtype, (np.float32(2) * qa.encode([3], values=(3, 4))).scale
        (quantarray.table(1), array([2.], dtype=float32))
        """
        return numpy_protocol.array_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call NumPy's functions that mean the same here; others are refused by name.

        >>> import quantarray as qa, numpy as np
        >>> q = qa.encode([[1, -1, 1]], values=(-1, 1))
        >>> np.concatenate([q, q]).shape, np.sum(q, axis=1)
        ((2, 3), array([1], dtype=int32))
        """
        return numpy_protocol.array_function(func, args, kwargs)

    if not TYPE_CHECKING:  # type checkers would take every name for an attribute

        def __getattr__(self, name: str) -> NoReturn:
            missing = _MISSING.get(name, f"{type(self).__name__!r} object has no attribute {name!r}{_function(name)}")
            raise AttributeError(missing)

    def _repr_html_(self: Any) -> str:
        return html(self)


def _rows(q: QuantArray) -> Iterator[QuantArray]:
    """Iterate over q[i]. Where the first axis is packed, all are repacked at once, as each would be by itself."""
    rows = q if q.axis else repacking.repack(q)
    return (rows[i] for i in range(len(q)))


def _values(q: QuantArray) -> Iterator[Any]:
    """Iterate over the elements of an array with one axis, unpacked a block at a time."""
    group = q.group or 1  # which no slice may cut
    step = max(1, _BLOCK // group) * group
    for start in range(0, len(q), step):
        yield from placement.asnumpy(q[start : start + step].dequantize())


def _function(name: str) -> str:
    """Return a hint at the function that has the name of a missing method of NumPy's, or does what that does."""
    if name in ("item", "tolist"):
        return f"; .dequantize().{name}() gives values"
    if name in _OTHER_WORDS:
        return f"; {_OTHER_WORDS[name]}"
    if name in _LATER:
        return f"; quantarray.{_LATER[name]} is a function"
    ours = numpy_protocol.NAMES.get(name, name)
    return f"; quantarray.{ours}(q, ..) is a function" if numpy_protocol.is_public(ours) else ""
