"""Depthwise convolution as products of bytes: results are those of the oracle, by models of what instructions do."""

from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest
from cuda_backend import twins
from hypothesis import given, settings
from hypothesis import strategies as st
from results import assert_bits
from test_cuda_layout import test_floats_depthwise as test_floats_depthwise  # by the kernel of this file
from test_cuda_layout import test_integers_depthwise as test_integers_depthwise

import quantarray as qa
from quantarray.cuda.depthwise import tensor_cores
from quantarray.cuda.depthwise.windows import BEGIN, FIRST, KIND, LAST, most_seen, windows_of
from quantarray.cuda.popcount.tiles import OUTSIDE
from quantarray.cuda.runtime import launch
from quantarray.kernels.windows import Window, plan

few = settings(max_examples=10)


@pytest.fixture(autouse=True, scope="module", params=[(1, (1,)), (3, (3, 1))], ids=["1-warp", "3-warps"])
def small(request):
    """Blocks of few warps, and grids so low that half-words are walked."""
    warps, sizes = request.param
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tensor_cores, "WARPS", warps)
        patched.setattr(tensor_cores, "SIZES", sizes)
        patched.setattr(tensor_cores, "FULL", 1)
        patched.setattr(launch, "MOST_ROWS", 2)
        patched.setattr(launch, "capability", lambda: (8, 0))
        tensor_cores._kernel.cache_clear()
        yield
    tensor_cores._kernel.cache_clear()


@pytest.mark.parametrize("law", [(-1, 1), range(8)])
def test_avg_pool(law):
    values = np.random.default_rng(0).choice(law, (2, 3, 4, 65))
    q = qa.encode(values, law)
    how = {"stride": 1, "padding": ((1, 0), (1, 1))}
    on_cpu = qa.avg_pool2d(q, (2, 3), **how)
    with twins(), on_tensor_cores():
        assert_bits(qa.avg_pool2d(q, (2, 3), **how), on_cpu)


@contextmanager
def on_tensor_cores(expected=True):
    """Check that products inside run on tensor cores, or do not."""
    with patch.object(tensor_cores, "run", wraps=tensor_cores.run) as ran:
        yield
    assert bool(ran.call_count) == expected


def depthwise(x, w, **how):
    """Return the result of the twin and that of the CPU, whose prepared call another array keeps."""
    on_cpu = qa.conv2d(x, w.copy(), groups=x.shape[-1], **how)
    with twins():
        return qa.conv2d(x, w.copy(), groups=x.shape[-1], **how), on_cpu


@pytest.mark.parametrize("bits", range(1, 9))
def test_bits_of_both_sides(bits):
    """Codes and weights reach both ends of their range: 255 is two digits, -128 one."""
    rng = np.random.default_rng(bits)
    x = qa.from_codes(rng.integers(0, 2**bits, (1, 4, 3, 37)), getattr(qa, f"uint{bits}"))
    low, high = (-(2 ** (bits - 1)), 2**bits - 1) if bits > 1 else (0, 1)
    w = qa.encode(
        rng.choice((low, high, 0, 1) if bits > 1 else (0, 1), (37, 3, 2, 1)),
        (low, 0, 1, high) if bits > 1 else (0, 1),
        axis=0,
    )
    with on_tensor_cores():
        for how in ({}, {"requantize": qa.Thresholds([0, high, 3 * high, 2**17])}):
            compare(*depthwise(x, w, padding=1, **how))


def compare(got, expected):
    if isinstance(expected, qa.QuantArray):
        np.testing.assert_array_equal(got.words, expected.words)
    else:
        assert_bits(got, expected)


@pytest.mark.parametrize(("levels", "fits"), [((0, 1), True), ((-1, 1), False), ((0, 5), False)])
def test_sums_at_the_bounds_of_int32(levels, fits):
    """Levels as far apart as int32 allows; where codes times weights pass it, another kernel sums in int64."""
    most = 2**31 - 1
    x = qa.encode(np.array([[[levels, levels[::-1]]]]), levels)
    w = qa.encode(np.array([most, -most]).reshape(2, 1, 1, 1), (-most, most), axis=0)
    with on_tensor_cores(fits):
        compare(*depthwise(x, w))
    with on_tensor_cores(fits):
        compare(*depthwise(x, w, requantize=qa.Thresholds([-most, 1 - most, 0, most - 1, most])))


@pytest.mark.parametrize("count", [1, 2, 4, 15, 255])
def test_numbers_of_thresholds(count):
    rng = np.random.default_rng(count)
    x, w = (
        qa.from_codes(rng.integers(0, 16, (2, 3, 3, 40)), qa.uint4),
        qa.encode(rng.choice((-1, 1), (80, 2, 2, 1)), (-1, 1), axis=0),
    )
    values = np.sort(rng.integers(-40, 40, (80, count)), axis=1)
    law = qa.Thresholds(values, greater=rng.integers(0, 2, 80).astype(bool))
    with on_tensor_cores():
        compare(*depthwise(x, w, padding=1, requantize=law))


def test_windows_wider_than_shared_memory_use_another_kernel(monkeypatch):
    monkeypatch.setattr(tensor_cores, "MOST", 32 * 5)
    x, w = qa.encode(np.ones((1, 3, 5, 3), int), (-1, 1)), qa.encode(np.ones((3, 2, 2, 1), int), (-1, 1), axis=0)
    with on_tensor_cores(False):
        compare(*depthwise(x, w))


@pytest.mark.parametrize(
    ("capability", "asked", "fits"), [((7, 5), "", False), ((12, 0), "", True), ((9, 0), "popc", False)]
)
def test_gpus_without_the_instruction_use_another_kernel(capability, asked, fits, monkeypatch):
    monkeypatch.setattr(launch, "capability", lambda: capability)
    monkeypatch.setenv("QUANTARRAY_CUDA", asked)
    x, w = qa.encode(np.ones((1, 2, 2, 3), int), (-1, 1)), qa.encode(np.ones((3, 2, 2, 1), int), (-1, 1), axis=0)
    with on_tensor_cores(fits):
        compare(*depthwise(x, w))


@few
@given(
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(0, 3),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(1, 40),
)
def test_tiles_hold_all_that_their_windows_see(stride, size, image, pad, dilation, images, tile):
    """Of heavily padded images, windows of neighbours do not follow each other."""
    image = max(image, (size - 1) * dilation + 1 - 2 * pad)
    found = Window((image, image + 1), (size,) * 2, (stride,) * 2, ((pad, pad),) * 2, (dilation,) * 2)
    seen = windows_of(plan(found, 1, 1, 1), 1)
    table, offsets, pixels = seen.table, seen.offsets, seen.image
    most = most_seen(seen, tile)
    rows = [(i, p) for i in range(images) for p in range(len(table))]
    for first in range(0, len(rows), tile):
        those = rows[first : first + tile]
        begin = those[0][0] * pixels + table[those[0][1], FIRST]
        end = those[-1][0] * pixels + table[those[-1][1], LAST] + 1
        assert end - begin <= most and 0 <= begin and end <= images * pixels
        for i, p in those:
            inside = [o for o in offsets[table[p, KIND]] if o != OUTSIDE]
            assert all(begin <= i * pixels + table[p, BEGIN] + o < end for o in inside)
