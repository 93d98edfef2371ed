"""Arrays without elements that stand for those of a GPU while a call is recorded."""

from types import SimpleNamespace

import numpy as np
from numpy.lib.stride_tricks import as_strided

BEGIN = 1 << 40  # where each piece of memory begins, as far as kernels are chosen by addresses: at any multiple


class ElementsAreRead(Exception):  # no error of a user's
    """A call that is recorded does more than launch kernels."""


class Blank:
    """An array of GPU memory that has a shape, a dtype and strides, but no elements; views of it are Blank too.

    `place` is the number of the piece of memory, and `offset` the byte in it. Reshaped, sliced or transposed it is a
    view as CuPy's arrays are. Whatever else asks for anything raises ElementsAreRead, AttributeError or TypeError.
    """

    __slots__ = ("_held", "data", "device", "dtype", "flags", "itemsize", "nbytes", "ndim", "offset", "place", "shape",
                 "size", "strides")  # fmt: skip

    def __init__(self, place, device, held, offset=0):
        """held: NumPy's array with the shape, dtype and strides, over memory that is never looked at."""
        self.place, self.device, self._held, self.offset = place, device, held, offset
        self.shape, self.dtype, self.strides, self.flags = held.shape, held.dtype, held.strides, held.flags
        self.ndim, self.size, self.itemsize, self.nbytes = held.ndim, held.size, held.itemsize, held.nbytes
        self.data = SimpleNamespace(ptr=BEGIN + offset)

    @classmethod
    def of(cls, place, device, shape, dtype):
        """Return a whole piece of memory as an array of a shape, a tuple, and a NumPy dtype."""
        held = np.empty(shape, dtype) if 0 in shape else np.empty(1, dtype)
        if held.size:
            steps = [dtype.itemsize]
            for n in shape[:0:-1]:
                steps.insert(0, steps[0] * n)
            held = as_strided(held, shape, steps[: len(shape)])
        return cls(place, device, held)

    def _view(self, held):
        offset = held.__array_interface__["data"][0] - self._held.__array_interface__["data"][0] if held.size else 0
        return Blank(self.place, self.device, held, self.offset + offset)

    def reshape(self, *shape):
        if not self.flags.c_contiguous:  # it might be copied
            raise ElementsAreRead
        return self._view(self._held.reshape(*shape))

    def transpose(self, *axes):
        return self._view(self._held.transpose(*axes))

    def view(self, dtype=None):
        return self._view(self._held.view() if dtype is None else self._held.view(dtype))

    @property
    def T(self):
        return self.transpose()

    def __getitem__(self, key):
        keys = key if isinstance(key, tuple) else (key,)
        if not all(one is None or one is Ellipsis or isinstance(one, (slice, int)) for one in keys):
            raise ElementsAreRead
        held = self._held[(*keys, ...)] if Ellipsis not in keys else self._held[keys]
        return self._view(held)

    def __len__(self):
        return len(self._held)

    def _refuse(self, *args, **kwargs):
        raise ElementsAreRead

    __array_ufunc__ = None
    __bool__ = __int__ = __float__ = __index__ = __iter__ = __array__ = __array_function__ = __setitem__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __hash__ = object.__hash__
