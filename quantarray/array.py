"""QuantArray: packed words, a law, and a logical shape."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, Self, cast, overload

import numpy as np

from .device import asnumpy, contiguous, empty, has_kernel, settle
from .dtypes import Array, Constants, DType, level_values
from .format import WORD, is_locked, locked, tail_mask, word_count
from .hints import Bytes, Index
from .layouts import LaidOut, Layouts, layouts_of
from .operators import Operators
from .protocols import NAMES, array_function, array_ufunc
from .reductions import Reductions
from .shaping import Shaping
from .text import short

_PREVIEW = 6
_BLOCK = 1 << 14  # elements that an iterator unpacks at a time
_NO_CONSTANTS = Constants()


class QuantArray(Operators, Reductions, Shaping):
    """An immutable array of 1 to 8 bits an element that never leaves its packed form by accident.

    Always true (`validate` repeats this list as code, and the tests call it after every operation):
    - `words` is a read-only uint64 array `[bits, *outer, word_count(shape[axis])]`, where `outer` is `shape`
      without `axis`, in order; bit k of the code of element i of the packed axis is bit i % 64 of word i // 64
      in plane k;
    - the bits behind the last element of a row are zero in every plane;
    - every code is less than `dtype.n_levels`;
    - the constants are read-only, finite arrays, all float32 or all bfloat16, that are there exactly as the kind of
      the dtype asks (see `quantarray.dtypes`), with as many axes as the array, each axis either 1 or the array's
      length, or along the packed axis the number of groups.

    Make one with `quantize`, `encode`, `from_codes`, `from_words` or `load`. The class itself takes words over: the
    array that owns their memory becomes read-only too, so that nobody writes to them.

    >>> import quantarray as qa, numpy as np
    >>> q = qa.encode(np.array([[1, -1, 1], [-1, -1, 1]]), values=(-1, 1))
    >>> q.shape, q.bits, q.words.tolist()
    ((2, 3), 1, [[[5], [4]]])
    """

    __slots__ = ("_axis", "_cache", "_compact", "_constants", "_dtype", "_near", "_scheme", "_shape", "_words")

    def __new__(cls, words: Array, *args: Any, **kwargs: Any) -> Self:
        """A `CuQuantArray` where the words lie on a GPU."""
        if cls is QuantArray and not isinstance(words, np.ndarray):
            from .cuda.array import CuQuantArray

            return cast(Self, object.__new__(CuQuantArray))
        return object.__new__(cls)

    def __init__(
        self,
        words: Array,
        dtype: DType,
        shape: tuple[int, ...],
        axis: int,
        constants: Constants | None = None,
        scheme: str | None = None,
    ) -> None:
        self._words: Array | LaidOut = _frozen(words)
        self._dtype = dtype
        self._shape = shape
        self._axis = axis
        self._constants = _NO_CONSTANTS if constants is None else constants
        self._scheme = scheme
        self._cache: Layouts | None = None
        self._compact = False  # the words are dropped once a kernel has laid them out
        self._near: tuple[int, Array] | None = None  # the first of some values, which were unpacked to read one

    # What it is

    @property
    def shape(self) -> tuple[int, ...]:
        """The logical shape."""
        return self._shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self._shape)

    @property
    def dtype(self) -> DType:
        """The law: which kind of levels, and which if they are integers."""
        return self._dtype

    @property
    def bits(self) -> int:
        """Bits an element."""
        return self._dtype.bits

    @property
    def axis(self) -> int:
        """The packed axis, not negative."""
        return self._axis

    @property
    def words(self) -> Array:
        """The packed words, uint64 [bits, *outer, word]: a read-only view, which has DLPack. Of a layer that is
        `compact()` they are made anew each time.

        `np.from_dlpack(q.words)` shares them and stays read-only. PyTorch has no read-only tensors: its from_dlpack and
        from_numpy share them too, so copy, or a write would change an array that others take for constant.
        """
        words = self._words  # a view of it: its shape and strides could be set
        return words.restored() if type(words) is LaidOut else cast(Array, words).view()

    @property
    def constants(self) -> Constants:
        """Scale, offset, table and group together."""
        return self._constants

    @property
    def scale(self) -> Array | None:
        """The scale, float32; for a basis one per plane, [bits, ...]. None where there is none."""
        return self._constants.scale

    @property
    def offset(self) -> Array | None:
        """The offset of a uniform or basis law, float32. None where there is none."""
        return self._constants.offset

    @property
    def group(self) -> int | None:
        """How many elements of the packed axis share constants; None if they don't vary along it."""
        return self._constants.group

    @property
    def scheme(self) -> str | None:
        """The repr of the quantiser that made this array, or the one that this is a view of; else None.

        A note for people: `array_equal` and `digest` don't look at it. Pickles and files of `save` keep it.

        >>> import quantarray as qa
        >>> qa.quantize([[-3.0, 1.0]], qa.XNOR()).T.scheme
        'XNOR()'
        """
        return self._scheme

    @property
    def levels(self) -> Array:
        """The value of every code, [n_levels, ...]: int64 [n_levels] for integer levels, else float32.

        >>> import quantarray as qa
        >>> qa.encode([1, -1], values=(-1, 1)).levels
        array([-1,  1])
        """
        return level_values(self._dtype, self._constants)

    @property
    def device(self) -> str:
        """Where the words lie."""
        return "cpu"

    @property
    def nbytes(self) -> int:
        """Bytes of words and constants."""
        return self._words.nbytes + self._constants.nbytes

    @property
    def nbytes_cached(self) -> int:
        """Bytes of what kernels keep of this array; `drop_cache()` frees them.

        Layouts of its words are at most `nbytes`, and 256 KiB or a sixteenth of that; besides there is what goes with
        pixels and thresholds of the calls so far. docs/memory.md has figures.
        """
        return 0 if self._cache is None else self._cache.nbytes

    # Out of the packed form, by name only

    def codes(self) -> Array:
        """The codes, uint8, in the logical shape.

        >>> import quantarray as qa
        >>> qa.encode([3, 0, 2], values=range(4)).codes()
        array([3, 0, 2], dtype=uint8)
        """
        from .ops import conversion

        return conversion.codes(self)

    def dequantize(self) -> Array:
        """The values: int32 where the levels are integers without a scale, else float32.

        >>> import quantarray as qa, numpy as np
        >>> qa.quantize(np.float32([0.5, -1.5, 1.0]), qa.Sign(scale=True)).dequantize()
        array([ 1., -1.,  1.], dtype=float32)
        """
        from .ops import conversion

        return conversion.dequantize(self)

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray[Any, np.dtype[np.void]]:
        # Not NoReturn, which fits every dtype: type checkers would take `ndarray + q` for an ndarray
        raise TypeError("a QuantArray does not turn into a NumPy array by accident: call .dequantize() or .codes()")

    def __dlpack__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse at once: consumers such as `torch.tensor` would else ask for one element after the other."""
        raise TypeError(_NO_DLPACK)

    def __dlpack_device__(self) -> NoReturn:
        raise TypeError(_NO_DLPACK)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """Ufuncs that mean the same on levels, and reductions by them; others are refused by name.

        >>> import quantarray as qa, numpy as np
        >>> np.tanh(qa.encode([1, -1], values=(-1, 1))).dtype, (np.float32(2) * qa.encode([3], values=(3, 4))).scale
        (quantarray.table(1), array([2.], dtype=float32))
        """
        return array_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """NumPy's functions that mean the same here; others are refused by name.

        >>> import quantarray as qa, numpy as np
        >>> q = qa.encode([[1, -1, 1]], values=(-1, 1))
        >>> np.concatenate([q, q]).shape, np.sum(q, axis=1)
        ((2, 3), array([1], dtype=int32))
        """
        return array_function(func, args, kwargs)

    if not TYPE_CHECKING:  # type checkers would take every name for an attribute

        def __getattr__(self, name: str) -> NoReturn:
            missing = _MISSING.get(name, f"{type(self).__name__!r} object has no attribute {name!r}{_function(name)}")
            raise AttributeError(missing)

    # Elements

    @overload
    def __getitem__(self, key: tuple[int | np.integer[Any], ...]) -> Any: ...  # a value, if an integer for each axis
    @overload
    def __getitem__(self, key: Index | tuple[Index, ...]) -> QuantArray: ...
    def __getitem__(self, key: Any) -> Any:
        """NumPy's indexing by integers, slices, ..., None, and by arrays of integers and masks.

        Slices of unpacked axes and slices of the packed one that begin and end on words are views; other slices of
        the packed axis copy words, arrays what they name. An integer on the packed axis leaves the last
        other axis packed, integers on all axes give the value as a NumPy scalar. Type checkers, which do not know how
        many axes there are, take q[0] for an array.

        >>> import quantarray as qa, numpy as np
        >>> q = qa.encode(np.arange(12).reshape(3, 4) % 4, values=range(4))
        >>> q[1:, ::-1].shape, q[-1].dequantize(), q[[0, 2], 3].dequantize(), q[0, 3]
        ((2, 4), array([0, 1, 2, 3], dtype=int32), array([3, 3], dtype=int32), np.int32(3))
        """
        near = self._near
        if near is not None and type(key) is int and 0 <= key - near[0] < len(near[1]):
            return near[1][key - near[0]]
        from .ops import indexing

        return indexing.getitem(self, key)

    def __len__(self) -> int:
        return self._shape[0]

    def __contains__(self, value: Any) -> bool:
        """Whether an element has this value.

        >>> import quantarray as qa
        >>> q = qa.encode([1, 1], values=(-1, 1))
        >>> 1 in q, -1 in q, 0 in q
        (True, False, False)
        """
        from .ops import membership

        return membership.contains(self, value)

    def __iter__(self) -> Iterator[QuantArray]:
        """Arrays along the first axis; of one axis the values, as NumPy scalars.

        >>> import quantarray as qa
        >>> sum(qa.encode([3, 0, 2], values=range(4))), [row.shape for row in qa.ones((2, 5))]
        (np.int32(5), [(5,), (5,)])
        """
        return _values(self) if self.ndim == 1 else _rows(self)

    def copy(self) -> QuantArray:
        """An array of its own words."""
        words = empty(self.device, self._words.shape)
        words[...] = self.words
        return QuantArray(words, self._dtype, self._shape, self._axis, self._constants, self._scheme)

    def to_device(self, device: str) -> QuantArray:
        """This array on another device; itself if it is there already.

        >>> import quantarray as qa
        >>> qa.encode([1, -1], values=(-1, 1)).to_device("cpu").device
        'cpu'
        """
        from .device import move

        return move(self, device)

    # Arithmetic and comparison are in `Operators`, changes of shape in `Shaping`

    def __matmul__(self, other: QuantArray | Bytes) -> Array:
        from .ops import linalg

        if not isinstance(other, (QuantArray, np.ndarray)):
            return NotImplemented
        return linalg.matmul(self, other)

    def __rmatmul__(self, other: Bytes) -> Array:
        from .ops import linalg

        return linalg.matmul(other, self) if isinstance(other, np.ndarray) else NotImplemented

    if not TYPE_CHECKING:  # type checkers say that there are no such operations

        def __setitem__(self, key: Any, value: Any) -> NoReturn:
            raise TypeError("a QuantArray is immutable: change its .codes() or .dequantize() and pack the result anew")

        def __delitem__(self, key: Any) -> NoReturn:
            raise TypeError("a QuantArray is immutable: q[mask] and q[indices] give the elements that stay")

    def __bool__(self) -> bool:
        """The truth of the only element, as in NumPy; of no or several it is ambiguous."""
        if self.size == 1:
            return bool(self.dequantize().item())
        raise ValueError(
            f"the truth value of a packed array of {self.size} elements is ambiguous: use array_equal(), codes() or "
            f"dequantize()"
        )

    def digest(self) -> str:
        """Sixteen bytes in hex of shape, packed axis, dtype, constants and codes; docs/format.md has the recipe.

        Copies, views and files of an array have its digest. `array_equal` compares values only: arrays that it
        calls equal have different digests where their dtypes or packed axes differ.

        >>> import quantarray as qa
        >>> a, b = qa.encode([1, -1], values=(-1, 1)), qa.encode([1, 1], values=(-1, 1))
        >>> a.digest() == a.copy().digest(), a.digest() == b.digest()
        (True, False)
        """
        from .io.canonical import digest

        return digest(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # An ndarray pickles its own view only, and the kernels' layouts stay behind
        words = contiguous(self.words)
        return _rebuilt, (words, self._dtype, self._shape, self._axis, self._constants, self._scheme)

    # What kernels keep

    @property
    def _form(self) -> tuple[Any, ...]:
        """What a call that is made ready needs to know: all but the words and the values of the constants."""
        return self._dtype, self._shape, self._axis, self._constants._form, self.device

    def _cached(self, key: Any, build: Callable[..., Any], *args: Any) -> Any:
        """What `build(*args)` made of this array for a kernel, once a key and kept while there is room for it."""
        layouts = self._cache or layouts_of(self)
        entry = layouts.entries.get(key)
        if entry is not None:
            layouts.use(key)
            return entry
        entry = build(*args)  # two threads may both build; one result is kept
        settle(self.device)
        return layouts.put(key, entry)

    def _view(self) -> QuantArray:
        """The same array, without what kernels keep of it."""
        view = object.__new__(type(self))
        for name in QuantArray.__slots__:
            setattr(view, name, getattr(self, name))
        view._cache, view._compact = None, False
        return view

    def _keep_once(self) -> None:
        """Drop what kernels keep, and with the next layout that holds all bits of the words these too."""
        self._compact = True
        self.drop_cache()

    def _laid_out(self, name: str, words: Array, groups: int) -> None:
        """Note a layout that the kernel `name` made of the words, and can undo, where they are kept once."""
        if self._compact and getattr(self._words, "words", None) is not words and has_kernel(self.device, name):
            layouts_of(self).keep_once(words, self._words.nbytes)
            self._words = LaidOut(self.device, name, words, groups, self._words.shape)

    def drop_cache(self) -> None:
        """Free what kernels keep of this array; the next call builds it again."""
        if self._cache is not None:
            self._cache.clear()

    def __repr__(self) -> str:
        ratio = self.size * 4 / self.nbytes if self.nbytes else 0.0
        scheme = "" if self._scheme is None else f"scheme={short(self._scheme)}, "
        cached = f" + {self.nbytes_cached} cached" if self.nbytes_cached else ""
        return (
            f"{type(self).__name__}(shape={self._shape}, dtype={self._dtype}, bits={self.bits}, axis={self._axis}, "
            f"{scheme}{_describe_constants(self)}, device={self.device}, {self.nbytes} bytes{cached}, "
            f"{ratio:.1f}x smaller than float32, {_preview(self)})"
        )

    def _repr_html_(self) -> str:
        from .notebook import html

        return html(self)


_NO_DLPACK = "a QuantArray is no dense array: q.words has DLPack, and .dequantize() gives values, .codes() codes"
_MISSING = {
    "__array_namespace__": "quantarray is no namespace of the array API standard, whose dtypes and promotion it lacks: "
    "call its functions (docs/array-api.md lists them), or .dequantize() for an array that has one",
}


def _function(name: str) -> str:
    """What has the name of a missing method of NumPy's, or does what that does."""
    import quantarray

    if name in ("item", "tolist"):
        return f"; .dequantize().{name}() gives values"
    found = NAMES.get(name, name)
    return f"; quantarray.{found}(q, ..) is a function" if callable(getattr(quantarray, found, None)) else ""


def _rebuilt(
    words: Array, dtype: DType, shape: tuple[int, ...], axis: int, constants: Constants, scheme: str | None = None
) -> QuantArray:
    """A copied or unpickled array, whose own arrays come back writeable. Early pickles have no scheme."""
    return QuantArray(words, dtype, shape, axis, constants.map(lambda a, lead: a, constants.group), scheme)


def _frozen(a: Array) -> Array:
    if not isinstance(a, np.ndarray):  # CuPy's arrays know no read-only
        return a
    return locked(a)


def _describe_constants(q: QuantArray) -> str:
    parts = []
    for name, stored, lead in q.constants.items():
        a, inner = getattr(q.constants, name), stored.shape[lead:]
        varies = [str(d) for d in range(q.ndim) if inner[d] > 1]
        if q.group and inner[q.axis] > 1:
            varies[varies.index(str(q.axis))] = f"{q.axis} in groups of {q.group}"
        first = a.reshape(math.prod(a.shape[:lead]), -1)[:4, :1].ravel() if a.size else a.ravel()
        text = ", ".join(f"{v:.4g}" for v in first) + (", .." if lead and a.shape[0] > 4 else "") or "none"
        text = f"[{text}]" if lead else text
        parts.append(f"{name}={text}" + (f" .. along axis {' and '.join(varies)}" if varies else ""))
    return ", ".join(parts) or "no constants"


def _rows(q: QuantArray) -> Iterator[QuantArray]:
    """Each q[i]. Where the first axis is packed, all are repacked at once, as each would be by itself."""
    rows = q if q.axis else q.repack(-1)
    return (rows[i] for i in range(len(q)))


def _values(q: QuantArray) -> Iterator[Any]:
    """The elements of an array with one axis, unpacked a block at a time."""
    group = q.group or 1  # which no slice may cut
    step = max(1, _BLOCK // group) * group
    for start in range(0, len(q), step):
        yield from asnumpy(q[start : start + step].dequantize())


def _preview(q: QuantArray) -> str:
    if not q.size:
        return "values: none"
    key = tuple(0 if d != q.axis else slice(0, _PREVIEW) for d in range(q.ndim))
    values = asnumpy(q[key].dequantize())
    text = " ".join(f"{v:.4g}" for v in values)
    return f"values: {text}" + (" .." if q.size > len(values) else "")


def validate(q: QuantArray) -> None:
    """Raise ValueError unless the conditions in `QuantArray`'s docstring hold."""
    if not (q.ndim >= 1 and 0 <= q.axis < q.ndim and all(n >= 0 for n in q.shape)):
        raise ValueError(f"needs at least one axis and a packed one among them, got {q.shape}, {q.axis}")
    length = q.shape[q.axis]
    outer = q.shape[: q.axis] + q.shape[q.axis + 1 :]
    expected = (q.bits, *outer, word_count(length))
    if q.words.dtype != WORD or q.words.shape != expected:
        raise ValueError(f"needs words uint64 {expected}, got {q.words.dtype} {q.words.shape}")
    if isinstance(q.words, np.ndarray) and not is_locked(q.words):
        raise ValueError("words must be read-only")
    if q.words.size and (q.words[..., -1] & np.uint64(~tail_mask(length) & (2**64 - 1))).any():
        raise ValueError(f"bits behind element {length} of the packed axis must be zero")
    if q.dtype.n_levels < 2**q.bits and q.size and int(q.codes().max()) >= q.dtype.n_levels:
        raise ValueError(f"{q.dtype} has codes below {q.dtype.n_levels}, got {int(q.codes().max())}")
    validate_constants(q.dtype, q.shape, q.axis, q.constants)


def validate_constants(dtype: DType, shape: tuple[int, ...], axis: int, constants: Constants) -> None:
    """Raise ValueError unless the constants are those that the dtype asks for and broadcast to the shape."""
    if dtype.is_integer and constants.group is None and not constants.shapes:
        return
    needed = {"integer": set(), "uniform": {"scale", "offset"}, "basis": {"scale", "offset"}, "table": {"table"}}
    found = {name for name, _, _ in constants.items()}
    if found != needed[dtype.kind] and not (dtype.is_integer and found == {"scale"}):
        raise ValueError(f"{dtype}: needs the constants {sorted(needed[dtype.kind])}, got {sorted(found)}")
    group = constants.group
    if group is not None and group < 1:
        raise ValueError(f"{dtype}: a group needs at least one element, got {group}")
    groups = -(-shape[axis] // group) if group else 1
    packed = f"{groups} on the packed axis {axis}" + ("" if group else ", along which constants vary with group= only")
    for name, a, _ in constants.items():
        lead = {"table": (dtype.n_levels,), "scale": (dtype.bits,) if dtype.kind == "basis" else ()}.get(name, ())
        fits = a.ndim == len(lead) + len(shape) and a.shape[: len(lead)] == lead
        for d, n in enumerate(a.shape[len(lead) :] if fits else ()):
            fits = fits and (n == 1 or n == (groups if d == axis else shape[d]))
        if not fits:
            raise ValueError(
                f"{dtype}: {name} must have the shape {(*lead, *shape)} with 1 where it does not vary and {packed}, "
                f"got {a.shape}"
            )
        stored = np.uint16 if constants.bfloat16 else np.float32
        if a.dtype != stored or not is_locked(a) or not np.isfinite(getattr(constants, name)).all():
            raise ValueError(f"{dtype}: {name} must be finite read-only float32, or with all others bfloat16 in uint16")
    with np.errstate(over="ignore"):
        if not all(np.isfinite(a.astype(np.float32)).all() for a in _outermost(dtype, constants)):
            raise ValueError(f"{dtype}: levels must lie within float32, but scale and offset put some beyond it")


def _outermost(dtype: DType, constants: Constants) -> list[Array]:
    """Float64 values that no level lies beyond: finite constants may still have levels that are not."""
    scale, offset = (None if a is None else a.astype(np.float64) for a in (constants.scale, constants.offset))
    if scale is None:
        return []
    if offset is None:
        return [scale * dtype.max_abs]
    if dtype.kind == "uniform":
        return [offset + scale * (dtype.n_levels - 1)]
    return [offset + np.minimum(scale, 0).sum(axis=0), offset + np.maximum(scale, 0).sum(axis=0)]


class _Module(ModuleType):
    """This module, which has the name of NumPy's function: who calls it is told what there is."""

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        from .array_api import REFUSED

        raise TypeError(f"quantarray.array is a module, no function: {REFUSED['asarray']}")


sys.modules[__name__].__class__ = _Module
