"""What bounds a case on this GPU: counting bits on its ordinary units, and its memory."""

from .clock import seconds

_POPCOUNTS = 16  # 32-bit popcounts a clock of a multiprocessor: compute capability 7.0 to 12.0
_COPIED = 1 << 30


def products_per_second(xp):
    """Products of two bits by and-popcount; tensor cores, where a kernel uses them, have other limits."""
    found = xp.cuda.Device(0).attributes
    return found["MultiProcessorCount"] * _POPCOUNTS * 32 * found["ClockRate"] * 1000


def bytes_per_second(xp):
    """Bytes read and written by a copy within the device's memory."""
    x = xp.zeros(_COPIED, "uint8")
    return 2 * _COPIED / seconds(xp, {"copy": x.copy}, 5)["copy"]


def least_seconds(case, products, nbytes):
    """The time that no kernel of and-popcounts goes below, by rates of products and of bytes."""
    return max(case.products / products, case.nbytes / nbytes)
