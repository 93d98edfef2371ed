"""CuQuantArray: a packed array whose words lie in GPU memory."""

from __future__ import annotations

from ..array import QuantArray
from ..device import device_of


class CuQuantArray(QuantArray):
    """A `QuantArray` whose words are a CuPy array; `q.to_device("cuda")` makes one, `qa.asnumpy(q)` brings it back.

    The words never leave the GPU by themselves, and dense results of its functions are CuPy arrays. Constants are small
    and stay NumPy arrays; kernels keep a copy where they run. What has no kernel for a GPU raises `DeviceError` and
    names it. CuPy knows no read-only arrays: do not write to `words`.
    """

    __slots__ = ()

    @property
    def device(self) -> str:
        """Where the words lie, such as "cuda:0"."""
        return device_of(self._words)
