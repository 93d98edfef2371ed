"""Nothing unpacks a whole array: memory stays below twice the packed bytes of what goes in and comes out."""

import tracemalloc

import numpy as np
import pytest

import quantarray as qa

MIB = 2**20
BOUND = 2
SMALL = 4 * MIB  # what the machinery of a call may take besides: blocks in work, tables, compiled kernels


def large(bits=1):
    """64 MiB of words."""
    rng = np.random.default_rng(bits)
    words = rng.integers(0, 2**64, (bits, 64 // bits, 128, 1024), dtype=np.uint64)
    dtype = qa.bipolar if bits == 1 else getattr(qa, f"uint{bits}")
    return qa.from_words(words, dtype, (64 // bits, 128, 65536))


CALLS = {
    "transpose": lambda q: q.transpose(1, 0, 2),
    "reshape": lambda q: q.reshape(-1, 65536),
    "flatten": lambda q: q.reshape(q.shape[0], -1),
    "slice of words": lambda q: q[:, :, 64:-64],
    "slice of bits": lambda q: q[:, :, 1:-1],
    "array_equal": lambda q: qa.array_equal(q, q[:]),
    "digest": lambda q: q.digest(),
    "copy": lambda q: q.copy(),
}


@pytest.mark.parametrize("bits", [1, 4])
@pytest.mark.parametrize("name", CALLS)
def test_peak(name, bits):
    q = large(bits)
    CALLS[name](q[:1, :2])  # compile and import
    tracemalloc.start()
    made = CALLS[name](q)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    out = getattr(made, "nbytes", 0)
    assert peak <= BOUND * (q.nbytes + out) - q.nbytes + SMALL, f"{peak / MIB:.0f} MiB"
