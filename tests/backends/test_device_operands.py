"""Dense operands on a GPU where NumPy's are taken: equal results, by a stand-in for CuPy and on a GPU."""

import numpy as np
import pytest
from gpus import GPUS

import quantarray as qa

RNG = np.random.default_rng(0)
ROWS = np.float32([1, 2, 3, 4])[:, None, None]
FLOATS = RNG.normal(size=(4, 5, 130)).astype(np.float32)
FLAGS = np.array([True, False, True, True, False])
Q = qa.from_codes(RNG.integers(0, 3, (4, 5, 130)), qa.ternary)
# name: function of a packed array and of what puts a NumPy array beside it
CALLS = {
    "times a number": lambda q, d: q * d(np.float32(2)),
    "times rows": lambda q, d: q * d(ROWS),
    "rows times it": lambda q, d: d(ROWS) * q,
    "plus rows": lambda q, d: q + d(ROWS),
    "minus": lambda q, d: q - d(ROWS),
    "divided": lambda q, d: q / d(ROWS),
    "power": lambda q, d: q ** d(np.array(2)),
    "equal": lambda q, d: q == d(np.zeros(130, int)),
    "greater": lambda q, d: q > d(ROWS - 2),
    "clip": lambda q, d: qa.clip(q, d(np.array(0)), d(np.array(1))),
    "product of floats": lambda q, d: qa.multiply(q, d(FLOATS), out_dtype=np.float16),
    "sum of integers": lambda q, d: qa.add(q, d(np.arange(130)), out_dtype=np.int16),
    "difference, its second": lambda q, d: qa.subtract(d(FLOATS), q, out_dtype=np.float64),
    "bias": lambda q, d: qa.linear(q, q[0], bias=d(np.arange(5))),
    "bias of a convolution": lambda q, d: qa.conv2d(q[None], q[:, :3, None], bias=d(np.float32([1, 2, 3, 4]))),
    "dense factor": lambda q, d: q @ d(np.ones((130, 3), np.int8)),
    "dense factor before": lambda q, d: d(np.ones((4, 2, 5), np.int8)) @ q.repack(1),
    "data adjoint of bytes": lambda q, d: qa.conv1d_data_adjoint(
        d(np.ones((4, 5, 4), np.int8)), q[:, :3], size=5, padding=1
    ),
    "filter adjoint of bytes": lambda q, d: qa.conv1d_filter_adjoint(
        q, d(np.full((4, 5, 3), -2, np.int8)), size=3, padding=1
    ),
    "mask": lambda q, d: q[:, d(FLAGS)],
    "mask of two axes": lambda q, d: q[d(FLOATS[..., 0] > 0)],
    "indices": lambda q, d: q[d(np.array([2, 0]))],
    "pairs of indices": lambda q, d: q[d(np.array([2, 0])), d(np.array([1, -1]))],
    "take": lambda q, d: qa.take(q, d(np.array([5, 3, 2])), 2),
    "take_along_axis": lambda q, d: qa.take_along_axis(q, d(np.arange(140).reshape(4, 5, 7) % 130), 2),
    "repeat": lambda q, d: qa.repeat(q, d(np.array([1, 2, 3, 1])), 0),
    "isin": lambda q, d: qa.isin(q, d(np.array([1]))),
    "searchsorted": lambda q, d: qa.searchsorted(qa.sort(q[0, 0]), d(np.array([0, 1]))),
    "relu_mask": lambda q, d: qa.relu_mask(d(FLOATS), 1),
    "pack_bits": lambda q, d: qa.pack_bits(d(FLOATS > 0), 0),
    "pack_bits of integers": lambda q, d: qa.pack_bits(d(np.arange(300).reshape(3, 100) % 256)),
    "scale": lambda q, d: qa.from_codes(d(np.ones((2, 70), np.uint8)), qa.uint2, scale=d(np.float32([[1], [2]]))),
    "thresholds": lambda q, d: qa.linear(q, q[0], requantize=qa.Thresholds(d(np.array([0, 7])))),
    "affine": lambda q, d: qa.Affine(d(FLOATS[0, 0, :5]), d(FLOATS[0, 1, :5]))(qa.linear(q, q[0])),
    "folded": lambda q, d: qa.fold_batchnorm(
        *map(d, (FLOATS[0, 0, :5], FLOATS[0, 1, :5], FLOATS[0, 2, :5], np.abs(FLOATS[0, 3, :5]) + 1)), into=qa.Sign()
    )(qa.linear(q, q[0])),
}


def on_host(result):
    host = qa.asnumpy(result)
    return host.dequantize() if isinstance(host, qa.QuantArray) else host


@GPUS
@pytest.mark.parametrize("name", CALLS)
def test_operands_on_a_gpu(gpu, name):
    with gpu() as xp:
        expected, got = CALLS[name](Q, np.asarray), CALLS[name](Q.to_device("cuda"), xp.asarray)
        assert got.device != "cpu" and got.dtype == expected.dtype and not isinstance(got, np.ndarray)
        np.testing.assert_array_equal(on_host(got), on_host(expected))


@GPUS
@pytest.mark.parametrize(
    "call",
    [
        lambda q, a: q * a,
        lambda q, a: q - a,
        lambda q, a: q == a,
        lambda q, a: q[a.astype(np.int64)],
        lambda q, a: qa.take(q, a.astype(np.int64), 0),
        lambda q, a: qa.multiply(q, a, out_dtype=np.float32),
    ],
)
def test_an_array_of_the_cpu_takes_none(gpu, call):
    with gpu() as xp, pytest.raises(qa.DeviceError, match=r"different devices.*to_device"):
        call(Q, xp.asarray(np.float32([1])))


@GPUS
def test_masks_follow_the_device(gpu):
    with gpu(), qa.device("cuda"):
        masks = qa.relu_mask(FLOATS), qa.dropout_mask((4, 70), 0.5)
        assert all(mask.device == "cuda:0" for mask in masks)


@GPUS
def test_what_no_kernel_reads_is_named(gpu):
    with gpu() as xp, pytest.raises(qa.DeviceError, match=r"map_reduce: array 1 is dense and on a GPU.*to the CPU"):
        qa.map_reduce(np.multiply, Q.to_device("cuda"), xp.asarray(FLOATS), axis=0)


@GPUS
def test_a_nan_is_found_there(gpu):
    with gpu() as xp, pytest.raises(ValueError, match=r"relu_mask: x must hold no NaN, got one at \(1,\)"):
        qa.relu_mask(xp.asarray(np.float32([1, np.nan])))


@GPUS
def test_integers_past_int64(gpu):
    with gpu() as xp, pytest.raises(qa.DeviceError, match="beyond int64 are computed on the CPU"):
        qa.multiply((Q + 2).to_device("cuda"), xp.asarray(np.full(130, 2**62)), out_dtype=np.float64)
