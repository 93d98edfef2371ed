"""Bounds of a case on this GPU: its rate of bit products, on tensor cores or ordinary units, and its memory."""

from functools import partial

from quantarray.cuda.runtime import isa

from .clock import seconds

_POPCOUNTS = 16  # 32-bit popcounts a clock of a multiprocessor: compute capability 7.0 to 12.0
# Products a clock of a multiprocessor: by the peak of an A100, by 8,500 TOPS of an H100 in one benchmark, and 8 times
# its products of bytes
_TENSOR = {("bmma", (8, 0)): 16384, ("bmma", (9, 0)): 16384, ("wgmma", (9, 0)): 32768}
_COPIED = 1 << 30


def products_per_second(xp):
    """Return the products of two bits a second on the units chosen for this GPU, at the highest clock.

    If the rate of its tensor cores is unknown, it is that of popcounts; 0 if the device does not tell its clock.
    """
    attributes, properties = xp.cuda.Device(0).attributes, xp.cuda.runtime.getDeviceProperties(0)
    capability = properties["major"], properties["minor"]
    rate = _TENSOR.get((isa.best(capability), capability), _POPCOUNTS * 32)
    return attributes["MultiProcessorCount"] * rate * attributes.get("ClockRate", 0) * 1000


def bytes_per_second(xp):
    """Measure the bytes read and written a second by a copy within the device's memory."""
    x = xp.arange(_COPIED // 8)
    return 2 * _COPIED / seconds(xp, partial(copied, xp, x, xp.empty(x.shape, x.dtype)), 5)


def copied(xp, x, y):
    """Copy x to y on their device by cudaMemcpyAsync, and return y; `x.copy()` of CuPy reaches a third of its rate."""
    y.data.copy_from_device_async(x.data, x.nbytes, xp.cuda.get_current_stream())
    return y


def least_seconds(case, products, nbytes):
    """Return the least seconds of a case at these rates of products and bytes a second."""
    return max(case.products / products if products else 0, case.nbytes / nbytes)
