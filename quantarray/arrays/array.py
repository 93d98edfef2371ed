"""QuantArray: packed words, a law, and a logical shape."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NoReturn, Self, cast

import numpy as np

from ..backends.registry import contiguous, empty, has_kernel, settle, to_host
from ..core.code_values import all_finite, level_values, outermost
from ..core.dtypes import Array, Constants, DType, uint1
from ..core.format import WORD, is_locked, locked, tail_mask, word_count
from ..core.recordings import RECORDINGS, unrecorded
from ..core.super_blocks import SuperBlocks
from ..core.text import short
from .layouts import LaidOut, Layouts, layouts_of
from .size_text import size_text

_PREVIEW = 6
_NO_CONSTANTS = Constants()

if TYPE_CHECKING:
    from ..methods import ArrayMethods
else:

    class ArrayMethods:
        """A class with the methods that call functions on arrays: `quantarray.methods`, above those functions, attaches
        them here."""

        __slots__ = ()
        __hash__ = None


class QuantArray(ArrayMethods):
    """An immutable array of 1 to 8 bits an element that never leaves its packed form by accident.

    Always true (`validate` repeats this list as code, and the tests call it after every operation):
    - `words` is a read-only uint64 array `[bits, *outer, word_count(shape[axis])]`, where `outer` is `shape`
      without `axis`, in order; bit k of the code of element i of the packed axis is bit i % 64 of word i // 64
      in plane k;
    - the bits after the last element of a row are zero in every plane;
    - every code is less than `dtype.n_levels`;
    - the constants are read-only and finite, all bfloat16 or each float32 or `SuperBlocks`, and exactly those that the
      dtype asks for (see `quantarray.core.dtypes`), with as many axes as the array, each axis either 1 or the array's
      length, or along the packed axis the number of groups.

    Make one with `quantize`, `encode`, `from_codes`, `from_words` or `load`. The class itself shares the words that it
    is given: the array that owns their memory becomes read-only too, so that nobody writes to them.

    >>> import quantarray as qa, numpy as np
    >>> q = qa.encode(np.array([[1, -1, 1], [-1, -1, 1]]), values=(-1, 1))
    >>> q.shape, q.bits, q.words.tolist()
    ((2, 3), 1, [[[5], [4]]])
    """

    __slots__ = ("_axis", "_cache", "_compact", "_constants", "_dtype", "_near", "_scheme", "_shape", "_words")

    def __new__(cls, words: Array, *args: Any, **kwargs: Any) -> Self:
        """Make a `CuQuantArray` if the words are on a GPU."""
        if cls is QuantArray and not isinstance(words, np.ndarray):
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
        """Return the logical shape."""
        return self._shape

    @property
    def ndim(self) -> int:
        """Return the number of axes."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return math.prod(self._shape)

    @property
    def dtype(self) -> DType:
        """Return the law: which kind of levels, and which if they are integers."""
        return self._dtype

    @property
    def bits(self) -> int:
        """Return the number of bits an element."""
        return self._dtype.bits

    @property
    def axis(self) -> int:
        """Return the packed axis, not negative."""
        return self._axis

    @property
    def words(self) -> Array:
        """Return the packed words, uint64 [bits, *outer, word]: a read-only view, with DLPack support. The words of a
        layer that is `compact()` are unpacked again each time.

        `np.from_dlpack(q.words)` shares them and stays read-only. PyTorch has no read-only tensors: its from_dlpack and
        from_numpy share them too, so copy before writing: others rely on a constant array.
        """
        words = self._words  # a view of it: its shape and strides could be set
        return words.restored() if type(words) is LaidOut else cast(Array, words).view()

    @property
    def constants(self) -> Constants:
        """Return scale, offset, table and group together."""
        return self._constants

    @property
    def scale(self) -> Array | None:
        """Return the scale, float32; for a basis one per plane, [bits, ...]. None where there is none."""
        return self._constants.scale

    @property
    def offset(self) -> Array | None:
        """Return the offset of a uniform or basis law, float32. None where there is none."""
        return self._constants.offset

    @property
    def group(self) -> int | None:
        """Count the elements of the packed axis that share constants; None if they don't vary along it."""
        return self._constants.group

    @property
    def scheme(self) -> str | None:
        """Return the repr of the quantiser that made this array, or the one that this is a view of; else None.

        A note for people: `array_equal` and `digest` don't look at it. Pickles and files of `save` keep it.

        >>> import quantarray as qa
        >>> qa.quantize([[-3.0, 1.0]], qa.XNOR()).T.scheme
        'XNOR()'
        """
        return self._scheme

    @property
    def levels(self) -> Array:
        """Return the value of every code, [n_levels, ...]: int64 [n_levels] for integer levels, else float32.

        >>> import quantarray as qa
        >>> qa.encode([1, -1], values=(-1, 1)).levels
        array([-1,  1])
        """
        return level_values(self._dtype, self._constants)

    @property
    def device(self) -> str:
        """Name the device that holds the words."""
        return "cpu"

    @property
    def nbytes(self) -> int:
        """Count the bytes of words and constants."""
        return self._words.nbytes + self._constants.nbytes

    @property
    def nbytes_cached(self) -> int:
        """Count the bytes that kernels cache of this array; `drop_cache()` frees them.

        Layouts of its words are at most `nbytes`, and 256 KiB or a sixteenth of that; besides there is what goes with
        pixels and thresholds of the calls so far. docs/memory.md has figures.
        """
        return 0 if self._cache is None else self._cache.nbytes

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, np.dtype[np.void]]:
        """Refuse, but for NumPy's assertions: `np.testing.assert_array_equal(q, values)` compares values."""
        # Not NoReturn, which fits every dtype: type checkers would take `ndarray + q` for an ndarray
        if sys._getframe(1).f_globals.get("__name__", "").startswith("numpy.testing."):
            return np.asarray(to_host(self.dequantize()), dtype)
        mask = ", of a mask .codes().astype(bool)" if self._dtype == uint1 else ""
        raise TypeError(
            f"a QuantArray does not turn into a NumPy array by accident: call .dequantize() or .codes(){mask}"
        )

    def __dlpack__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refuse at once: consumers such as `torch.tensor` would else ask for one element after the other."""
        raise TypeError(_NO_DLPACK)

    def __dlpack_device__(self) -> NoReturn:
        raise TypeError(_NO_DLPACK)

    # Elements

    def __len__(self) -> int:
        return self._shape[0]

    def copy(self) -> QuantArray:
        """Copy the array, with words of its own."""
        words = empty(self.device, self._words.shape)
        words[...] = self.words
        return QuantArray(words, self._dtype, self._shape, self._axis, self._constants, self._scheme)

    if not TYPE_CHECKING:  # type checkers say that there are no such operations

        def __setitem__(self, key: Any, value: Any) -> NoReturn:
            raise TypeError("a QuantArray is immutable: change its .codes() or .dequantize() and pack the result again")

        def __delitem__(self, key: Any) -> NoReturn:
            raise TypeError("a QuantArray is immutable: q[mask] and q[indices] give the elements that stay")

    def __reduce__(self) -> tuple[Any, ...]:
        # An ndarray pickles its own view only, and the kernels' layouts are not pickled
        words = contiguous(self.words)
        return _rebuilt, (words, self._dtype, self._shape, self._axis, self._constants, self._scheme)

    # What kernels keep

    @property
    def _form(self) -> tuple[Any, ...]:
        """Return all that a prepared call depends on: everything but the words and the values of the constants."""
        return self._dtype, self._shape, self._axis, self._constants._form, self.device

    def _cached(self, key: Any, build: Callable[..., Any], *args: Any) -> Any:
        """Return `build(*args)`, from the cache of this array if it has an entry with that key."""
        layouts = self._cache or layouts_of(self)
        entry = layouts.entries.get(key)
        if entry is not None:
            layouts.use(key)
            return entry
        with unrecorded() if RECORDINGS else nullcontext():
            entry = build(*args)  # two threads may both build; one result is kept
        settle(self.device)
        return layouts.put(key, entry)

    def _view(self) -> QuantArray:
        """Return the same array without a cache."""
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
        scheme = "" if self._scheme is None else f"scheme={short(self._scheme)}, "
        cached = f" + {self.nbytes_cached} cached" if self.nbytes_cached else ""
        return (
            f"{type(self).__name__}(shape={self._shape}, dtype={self._dtype}, bits={self.bits}, axis={self._axis}, "
            f"{scheme}{_describe_constants(self)}, device={self.device}, {self.nbytes} bytes{cached}, "
            f"{size_text(self)}, {_preview(self)})"
        )


_NO_DLPACK = "a QuantArray is no dense array: q.words has DLPack, and .dequantize() gives values, .codes() codes"


class CuQuantArray(QuantArray):
    """A `QuantArray` whose words are a CuPy array; `q.to_device("cuda")` makes one, `qa.asnumpy(q)` brings it back.

    The words never leave the GPU by themselves, and dense results of its functions are CuPy arrays. Constants are small
    and stay NumPy arrays; kernels keep a copy where they run. What has no kernel for a GPU raises `DeviceError` and
    names it. CuPy knows no read-only arrays: do not write to `words`.
    """

    __slots__ = ()

    @property
    def device(self) -> str:
        """Name the device that holds the words, such as "cuda:0"."""
        words: Any = self._words
        return f"cuda:{words.device.id}" if type(words) is not LaidOut else words.device


def _rebuilt(
    words: Array, dtype: DType, shape: tuple[int, ...], axis: int, constants: Constants, scheme: str | None = None
) -> QuantArray:
    """Rebuild a copied or unpickled array, whose own arrays come back writeable. Early pickles have no scheme."""
    return QuantArray(words, dtype, shape, axis, constants.with_group(constants.group), scheme)


def _frozen(a: Array) -> Array:
    if not isinstance(a, np.ndarray):  # CuPy's arrays know no read-only
        return a
    return locked(a)


def _describe_constants(q: QuantArray) -> str:
    parts = []
    for name, stored, lead in q.constants.stored():
        a, inner = getattr(q.constants, name), stored.shape[lead:]
        varies = [str(d) for d in range(q.ndim) if inner[d] > 1]
        if q.group and inner[q.axis] > 1:
            varies[varies.index(str(q.axis))] = f"{q.axis} in groups of {q.group}"
        first = a.reshape(math.prod(a.shape[:lead]), -1)[:4, :1].ravel() if a.size else a.ravel()
        text = ", ".join(f"{v:.4g}" for v in first) + (", .." if lead and a.shape[0] > 4 else "") or "none"
        text = f"[{text}]" if lead else text
        parts.append(f"{name}={text}" + (f" .. along axis {' and '.join(varies)}" if varies else ""))
    return ", ".join(parts) or "no constants"


def _preview(q: QuantArray) -> str:
    if not q.size:
        return "values: none"
    key = tuple(0 if d != q.axis else slice(0, _PREVIEW) for d in range(q.ndim))
    values = to_host(q[key].dequantize())
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
        raise ValueError(f"bits after element {length} of the packed axis must be zero")
    if q.dtype.n_levels < 2**q.bits and q.size and int(q.codes().max()) >= q.dtype.n_levels:
        raise ValueError(f"{q.dtype} has codes below {q.dtype.n_levels}, got {int(q.codes().max())}")
    validate_constants(q.dtype, q.shape, q.axis, q.constants)


def validate_constants(dtype: DType, shape: tuple[int, ...], axis: int, constants: Constants) -> None:
    """Raise ValueError unless the constants are those that the dtype asks for and broadcast to the shape."""
    if dtype.is_integer and constants.group is None and not constants.shapes:
        return
    needed = {"integer": set(), "uniform": {"scale", "offset"}, "basis": {"scale", "offset"}, "table": {"table"}}
    names = {name for name, _, _ in constants.stored()}
    if names != needed[dtype.kind] and not (dtype.is_integer and names == {"scale"}):
        raise ValueError(f"{dtype}: needs the constants {sorted(needed[dtype.kind])}, got {sorted(names)}")
    group = constants.group
    if group is not None and group < 1:
        raise ValueError(f"{dtype}: a group needs at least one element, got {group}")
    groups = -(-shape[axis] // group) if group else 1
    packed = f"{groups} on the packed axis {axis}" + ("" if group else ", along which constants vary with group= only")
    for name, a, _ in constants.stored():
        lead = {"table": (dtype.n_levels,), "scale": (dtype.bits,) if dtype.kind == "basis" else ()}.get(name, ())
        fits = a.ndim == len(lead) + len(shape) and a.shape[: len(lead)] == lead
        for d, n in enumerate(a.shape[len(lead) :] if fits else ()):
            fits = fits and (n == 1 or n == (groups if d == axis else shape[d]))
        if not fits:
            raise ValueError(
                f"{dtype}: {name} must have the shape {(*lead, *shape)} with 1 where it does not vary and {packed}, "
                f"got {a.shape}"
            )
        if isinstance(a, SuperBlocks):
            if axis != len(shape) - 1 or name == "table" or a.shape[-1] != groups:
                raise ValueError(
                    f"{dtype}: super-blocks are scales and offsets of each group along the last, packed axis, not "
                    f"{name} {a.shape}"
                )
            continue
        stored = np.uint16 if constants.bfloat16 else np.float32
        if a.dtype != stored or not is_locked(a) or not all_finite(getattr(constants, name)):
            raise ValueError(f"{dtype}: {name} must be finite read-only float32, or with all others bfloat16 in uint16")
    with np.errstate(over="ignore"):
        if not all(np.isfinite(a.astype(np.float32)).all() for a in outermost(dtype, constants)):
            raise ValueError(f"{dtype}: levels must fit in float32, but scale and offset put some beyond it")
