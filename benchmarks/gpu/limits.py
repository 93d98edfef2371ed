"""What bounds a case on this GPU: multiplying bits, on tensor cores or ordinary units, and its memory."""

from quantarray.cuda import isa

from .clock import seconds

_POPCOUNTS = 16  # 32-bit popcounts a clock of a multiprocessor: compute capability 7.0 to 12.0
# Products a clock of one, from the peak of an A100; of an H100 wgmma's, twice what 8,500 TOPS by mma are [derived]
_TENSOR = {(8, 0): 16384, (9, 0): 32768}
_COPIED = 1 << 30


def products_per_second(xp):
    """Products of two bits on the units that suit this GPU; by popcount where its tensor cores' rate is not known."""
    found, properties = xp.cuda.Device(0).attributes, xp.cuda.runtime.getDeviceProperties(0)
    capability = properties["major"], properties["minor"]
    tensor = _TENSOR.get(capability) if isa.best(capability) == "bmma" else None
    return found["MultiProcessorCount"] * (tensor or _POPCOUNTS * 32) * found["ClockRate"] * 1000


def bytes_per_second(xp):
    """Bytes read and written by a copy within the device's memory."""
    x = xp.zeros(_COPIED, "uint8")
    return 2 * _COPIED / seconds(xp, {"copy": x.copy}, 5)["copy"]


def least_seconds(case, products, nbytes):
    """The time that no kernel goes below, by rates of products and of bytes."""
    return max(case.products / products, case.nbytes / nbytes)
