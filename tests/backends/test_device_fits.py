"""Constants that are fitted on a GPU are the CPU's, to the bit, and x stays where it is."""

import fake_cupy
import numpy as np
import pytest
from gpus import GPUS, Tensor

import quantarray as qa

SCHEMES = [
    qa.Sign(), qa.Sign(scale=0.5), qa.XNOR(), qa.Ternary(), qa.Ternary(0), qa.PowerOfTwo(3), qa.DoReFa(1), qa.DoReFa(2),
    qa.DoReFa(8), qa.DoReFa(4, activations=True), qa.PACT(4), qa.PACT(2, alpha=3), qa.LloydMax(1), qa.LloydMax(3),
    qa.NormalFloat(4), qa.Uniform(1), qa.Uniform(4), qa.Uniform(8, symmetric=False), qa.Uniform(3, midrise=True),
    qa.Uniform(4, signed=False, percentile=99), qa.Uniform(4, symmetric=False, percentile=97), qa.Uniform(3, mse=True),
    qa.Uniform(2, symmetric=False, mse=True), qa.Uniform(2, mse=True, midrise=True), qa.LQ(2, starts=2),
    qa.LQ(2, center=True), qa.LQ(2, activations=True), qa.LQ(2, basis=[0.5, 1]), qa.ABC(1), qa.ABC(8), qa.Greedy(1),
    qa.Greedy(4), qa.Greedy(3, refit=True), qa.Grouped(2, group=64), qa.ABCActivations([-1, 1, 0.3], [1, -2, 0.5]),
]  # fmt: skip
ALONG = [{}, {"axis": 0}, {"scale_axis": 1}, {"axis": 1, "scale_axis": (0, 2)}, {"axis": 1, "group": 64}, {"group": 3},
         {"axis": 1, "group": 40, "scale_axis": 2}]  # fmt: skip


def same(got, expected):
    """True where two arrays have the same words and the same constants, to the bit."""
    got, pairs = qa.asnumpy(got), zip(got.constants.items(), expected.constants.items(), strict=True)
    return np.array_equal(got.words, expected.words) and all(
        a.tobytes() == b.tobytes() for (_, a, _), (_, b, _) in pairs
    )


@GPUS
@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
@pytest.mark.parametrize("along", ALONG, ids=repr)
def test_fits_are_the_cpus(scheme, along, gpu):
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float64, np.float16, np.int8):
        x = (rng.standard_normal((3, 150, 7)) * 3 + 0.5).astype(dtype)
        expected = qa.quantize(x, scheme, **along)
        with gpu() as xp:
            got = qa.quantize(xp.asarray(x), scheme, **along)
            assert got.device == "cuda:0" and same(got, expected), dtype


@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
def test_bfloat16(scheme):
    """Values of 16 bits are read in place where constants are given, and widened where they are fitted."""
    x = np.random.default_rng(0).standard_normal((3, 150)).astype(np.float32)
    bits = (x.view(np.uint32) >> 16).astype(np.uint16)
    short = (bits.astype(np.uint32) << 16).view(np.float32)
    for along in ({}, {"scale_axis": 0}, {"group": 40}):
        with fake_cupy.gpu():
            assert same(qa.quantize(Tensor(bits), scheme, **along), qa.quantize(short, scheme, **along))


@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
def test_x_stays_on_the_gpu(scheme, monkeypatch):
    """What is moved are sums of blocks, ends of parts, numbers for each level: a 16th of x at most."""
    x = np.random.default_rng(0).standard_normal((4, 1 << 16)).astype(np.float32)
    moved, asnumpy, asarray = [], fake_cupy.asnumpy, fake_cupy.asarray
    with fake_cupy.gpu() as xp:
        there = xp.asarray(x)
        monkeypatch.setattr(fake_cupy, "asnumpy", lambda a: moved.append(a.held.nbytes) or asnumpy(a))
        monkeypatch.setattr(fake_cupy, "asarray", lambda a, *k: moved.append(getattr(a, "nbytes", 0)) or asarray(a, *k))
        q = qa.quantize(there, scheme)
        assert q.device == "cuda:0"
    largest = max((a for a in moved if a != x.nbytes), default=0)
    assert moved.count(x.nbytes) <= 1 and largest <= x.nbytes // 16  # asarray gives x itself


@GPUS
@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_alike(scheme, value, gpu):
    x = np.random.default_rng(0).standard_normal((3, 150)).astype(np.float32)
    x[1, 70] = value

    def outcome(call):
        try:
            return call()
        except ValueError as error:
            return str(error)

    for along in ({}, {"scale_axis": 0}, {"group": 64}):
        expected = outcome(lambda: qa.quantize(x, scheme, **along))  # noqa: B023
        with gpu() as xp:
            got = outcome(lambda: qa.quantize(xp.asarray(x), scheme, **along))  # noqa: B023
            assert got == expected if isinstance(expected, str) else same(got, expected)


@GPUS
@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
def test_few_values(scheme, gpu):
    """None at all, one, zeros, and a constant."""
    for x in (
        np.zeros((0, 3)),
        np.zeros((2, 0)),
        np.float32([[7]]),
        np.zeros((2, 3)),
        np.full((3, 70), 0.3, np.float32),
    ):
        for along in ({}, {"scale_axis": 0}):
            with gpu() as xp:
                assert same(qa.quantize(xp.asarray(x), scheme, **along), qa.quantize(x, scheme, **along)), x.shape


def test_a_scheme_that_does_not_take_arrays_of_a_gpu():
    class Mine(qa.Uniform):
        def fit(self, x, axes):
            return qa.Constants(np.full((1,) * x.ndim, np.std(x), np.float32))

    with fake_cupy.gpu() as xp:
        with pytest.raises(qa.DeviceError, match="fitted on the CPU, as its class does not declare `anywhere`"):
            qa.quantize(xp.asarray(np.ones(3)), Mine(4))


@GPUS
@pytest.mark.parametrize("bits", [1, 3])
def test_a_scheme_is_chosen_for_x_on_the_gpu(bits, gpu):
    rng = np.random.default_rng(0)
    for x in (rng.standard_normal((3, 7000)).astype(np.float32), rng.exponential(size=(3, 70)), np.int8([[0, 1, 1]])):
        with gpu() as xp:
            got = qa.quantize(xp.asarray(x), bits=bits)
            assert got.scheme == qa.quantize(x, bits=bits).scheme and same(got, qa.quantize(x, bits=bits))
            if x.dtype.kind == "f":
                x[1, 2] = np.inf
                with pytest.raises(ValueError, match=r"quantize: x must be finite, got inf at \(1, 2\)"):
                    qa.quantize(xp.asarray(x), bits=bits)
