"""Arrays larger than memory: blocks, calibration, and what they may not change."""

import re
import tracemalloc
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from results import assert_packed

import quantarray as qa
from quantarray.arrays.array import validate
from quantarray.core import progress
from quantarray.ops.quantize import quantization

SCHEMES = [
    qa.Sign(),
    qa.XNOR(),
    qa.Uniform(4),
    qa.Uniform(8, symmetric=False),
    qa.LQ(2),
    qa.Greedy(3),
    qa.Greedy(2, refit=True),
    qa.ABC(3),
    qa.Ternary(),
    qa.DoReFa(2),
    qa.DoReFa(2, activations=True),
    qa.LloydMax(3),
    qa.NormalFloat(4),
    qa.Grouped(2, group=64, seed=3),
    qa.Grouped(4, group=96, seed=2**40),
]


@contextmanager
def in_blocks(elements):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quantization, "_BLOCK", elements)
        patch.setattr(quantization, "_KERNEL_BLOCK", elements)
        yield


@st.composite
def calls(draw):
    shape = draw(st.sampled_from([(500,), (1, 500), (5, 130), (3, 4, 70), (1, 3, 65, 2), (7, 64), (0, 3), (2, 0)]))
    axis = draw(st.integers(0, len(shape) - 1))
    how = draw(st.sampled_from(["array", "first", "packed", "group"]))
    given = {"array": {}, "first": {"scale_axis": 0}, "packed": {"scale_axis": axis}, "group": {"group": 32}}[how]
    return draw(st.sampled_from(SCHEMES)), shape, {"axis": axis, **given}, draw(st.sampled_from([1, 64, 100, 333]))


@given(calls(), st.integers(0, 2**32 - 1), st.sampled_from([np.float32, np.float64, np.int16]))
def test_blocks_change_nothing(call, seed, dtype):
    scheme, shape, how, size = call
    x = (20 * np.random.default_rng(seed).standard_normal(shape)).astype(dtype)
    whole = qa.quantize(x, scheme, **how)
    with in_blocks(size):
        parts = qa.quantize(x, scheme, **how)
    validate(parts)
    assert parts.dtype == whole.dtype and parts.group == whole.group
    assert parts.digest() == whole.digest()


def test_a_file_larger_than_the_blocks_stays_on_disk(tmp_path):
    """64 MiB of float32 in work blocks of 1 MiB: memory is the result and a few blocks."""
    file = tmp_path / "x.npy"
    x = np.lib.format.open_memmap(file, "w+", np.float32, (64, 2**18))
    rng = np.random.default_rng(0)
    for row in x:
        row[:] = rng.standard_normal(len(row), np.float32)
    x.flush()
    mapped = np.load(file, mmap_mode="r")
    for scheme, how in (
        (qa.Sign(), {}),
        (qa.XNOR(), {"scale_axis": 0}),
        (qa.PowerOfTwo(3), {"scale_axis": 0}),  # no kernel of its own at this size of constants
        (qa.Grouped(2), {}),
        (qa.LQ(2), {"calibration": x[:, ::1000].copy()}),
    ):
        qa.quantize(x[:1, :512], scheme, axis=-1)  # compile
        with in_blocks(2**18):
            tracemalloc.start()
            q = qa.quantize(mapped, scheme, **how)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < 3 * q.nbytes + 24 * 2**20 * (2 if "scale_axis" in how else 1) < x.nbytes + 20 * 2**20, scheme
        if "calibration" not in how:
            assert q.digest() == qa.quantize(np.array(x), scheme, **how).digest()


def test_calibration():
    x, sample = np.float32([[1, -9, 30]]), np.float32([[2, -4]])
    q = qa.quantize(x, qa.Sign(scale=True), calibration=sample)
    assert_packed(q, np.float32([[3, -3, 3]]))
    by_row = qa.quantize(np.float32([[1, 1], [1, -1]]), qa.XNOR(), scale_axis=0, calibration=np.float32([[2], [5]]))
    assert by_row.dequantize().tolist() == [[2, 2], [5, -5]]
    assert qa.quantize([1.0], qa.Sign(), calibration=[7]).dequantize().tolist() == [1]


@pytest.mark.parametrize("scheme", [s for s in SCHEMES if s.pointwise], ids=repr)
def test_infinities_beyond_a_calibrated_range_are_its_ends(scheme):
    sample = np.linspace(-2, 2, 192, dtype=np.float32)
    x = np.full(192, -np.inf, np.float32)
    x[1::2] = np.inf
    q = qa.quantize(x, scheme, calibration=sample)
    if isinstance(scheme, qa.Grouped):  # each group has its own
        assert q.codes().tolist() == [0, 2**scheme.bits - 1] * 96
    else:
        assert q.dequantize()[:2].tolist() == [q.levels.min(), q.levels.max()]


@pytest.mark.parametrize(
    "given, error",
    [
        ({"calibration": [1.0]}, "calibration must have 2 axes, .* got \\(1,\\)"),
        ({"calibration": np.ones((3, 9)), "scale_axis": 0}, "along the axes \\(0,\\) where constants vary, got"),
        ({"calibration": np.ones((2, 9)), "group": 2}, "along the axes \\(0, 1\\) where"),
        ({"calibration": np.full((2, 9), np.nan)}, "x must hold no NaN, got one at \\(0, 0\\)"),
    ],
)
def test_wrong_calibration(given, error):
    with pytest.raises(ValueError, match=f"quantize: .*{error}"):
        qa.quantize(np.ones((2, 4)), qa.XNOR(), **given)


@pytest.mark.parametrize("scheme", [s for s in SCHEMES if not s.pointwise], ids=repr)
def test_codes_of_all_values_take_no_calibration(scheme):
    with pytest.raises(ValueError, match="takes an element's code from all values"):
        qa.quantize(np.ones(4), scheme, calibration=np.ones(4))


@pytest.mark.parametrize("scheme", [qa.Uniform(8, step=0.5), qa.Sign(), qa.LQ(2), qa.Uniform(4)], ids=repr)
@pytest.mark.parametrize("shape, where", [((300,), (257,)), ((9, 3, 10), (7, 1, 4)), ((1, 9, 5), (0, 8, 2))])
def test_a_nan_is_found_where_it_is(scheme, shape, where):
    x = np.ones(shape, np.float32)
    x[where] = np.nan
    with in_blocks(64), pytest.raises(ValueError, match="NaN, got one at " + re.escape(str(where))):
        qa.quantize(x, scheme)


def test_progress_shows_where_it_is_asked_for(capsys, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    x = np.ones((6, 64), np.float32)
    with in_blocks(64):
        qa.quantize(x, qa.Sign())
        assert capsys.readouterr().err == ""
        qa.quantize(x, qa.Sign(), progress=True)
    err = capsys.readouterr().err
    assert "3 of 6" in err and f"\r[{'#' * 30}] 6 of 6" in err and err.endswith("\r\x1b[K")
