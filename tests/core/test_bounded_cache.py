"""Caches that are bounded in entries and in bytes."""

import tracemalloc

import numpy as np
import pytest

from quantarray.core.bounded_cache import Kept, cached
from quantarray.kernels import windows
from quantarray.kernels.windows import Window
from quantarray.nn.operators import pooling


def test_the_oldest_entries_make_room():
    cache = Kept(3, 100)
    for i in range(5):
        cache.keep(i, np.zeros(i, np.uint8))
    assert list(cache.entries) == [2, 3, 4]
    cache.keep("large", (np.zeros(95, np.uint8), "no array"))
    assert list(cache.entries) == [4, "large"]
    cache.keep("larger", np.zeros(200, np.uint8))
    assert list(cache.entries) == ["larger"]  # what nobody could do without is stored whatever its size
    cache.keep("larger", np.zeros(1, np.uint8))
    cache.keep("small", np.zeros(99, np.uint8))
    assert list(cache.entries) == ["larger", "small"]
    cache.keep([], 1)  # a key without a hash
    assert list(cache.entries) == ["larger", "small"] and cache.get([]) is None


def test_calls_with_equal_arguments_return_one_result():
    calls = []

    @cached
    def ones(n):
        calls.append(n)
        return np.ones(n)

    assert ones(2) is ones(2) and ones(3).size == 3 and calls == [2, 3]


CALLS = {
    "classes": lambda window, n: windows.classes(window),
    "stretches": lambda window, n: windows.stretches(window, 2),
    "plan": lambda window, n: windows.plan(window, 1, 1, 4),
    "squares": lambda window, n: windows.squares(window, 1, 1),
    "frame": lambda window, n: windows.frame(window, 1, 1),
    "row_plan": lambda window, n: windows.row_plan(n * n, 1, 1, 4),
    "counts": lambda window, n: pooling.counts({"kernel_shape": (2, 2)}, (n, n)),
}


@pytest.mark.parametrize("name", CALLS)
def test_geometry_of_images_of_ever_new_sizes_is_bounded(name):
    """256 plans of 1000x1000 pixels took 4 GB, as many classes 4 GB more."""
    tracemalloc.start()
    for n in range(400, 440):
        CALLS[name](Window((n, n), (3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1)), n)
    nbytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert nbytes < (34 << 20) * (1 if name in ("classes", "row_plan", "counts") else 2), nbytes
