"""Recorded calls in the simulator: kernels run on what the driver's blocks of parameters say, and nothing else.

The stand-in for CuPy has its arrays in the CPU's memory, so addresses in a block are those of NumPy's arrays.
"""

import ctypes
import gc
import sys
from types import SimpleNamespace
from unittest.mock import patch

import fake_cupy
import numpy as np
import pytest
from cuda_backend import cuda_simulator  # noqa: F401  # which this installs
from stubbed_gpu import nothing_recorded

import quantarray as qa
from quantarray.arrays import launched
from quantarray.cuda.runtime import driver, launch, recorded

INT64 = np.dtype(np.int64)


class Template:
    """A kernel for arguments of one form, which reads these from a block of the driver."""

    def __init__(self, kernel, args):
        self.kernel, self.args = kernel, args

    def __call__(self, grid, block, shared, table):
        self.table, self.at = table, 0
        args = [self._read(a) for a in self.args]
        self.kernel[grid, block, 0, shared](*args)

    def _word(self, kind=INT64):
        address = ctypes.c_uint64.from_address(self.table + 8 * self.at).value
        self.at += 1
        return np.frombuffer(ctypes.string_at(address, kind.itemsize), kind)[0]

    def _read(self, a):
        if isinstance(a, tuple):
            return type(a)(*map(self._read, a)) if hasattr(a, "_fields") else tuple(map(self._read, a))
        if isinstance(a, driver.NUMBERS):
            value = self._word(np.asarray(a).dtype)
            return value if isinstance(a, np.generic) else type(a)(value)
        _, _, size, itemsize, address, *form = (int(self._word()) for _ in range(5 + 2 * a.ndim))
        shape, strides = tuple(form[: a.ndim]), tuple(form[a.ndim :])
        assert itemsize == a.dtype.itemsize and size == np.prod(shape, dtype=int)
        reach = sum(s * (n - 1) for n, s in zip(shape, strides, strict=True)) + itemsize if size else 0
        memory = (ctypes.c_char * max(reach, 1)).from_address(address) if reach else b"0" * 64
        return np.ndarray(shape, a.dtype, memory, 0, strides)


def garbage(shape, dtype):
    """Allocate what no kernel has written, which is not by luck what an earlier call left."""
    held = np.empty(shape, dtype)
    held.reshape(-1).view(np.uint8)[:] = 0x5A
    return fake_cupy.ndarray(held)


@pytest.fixture
def started():
    """List the kernels that the driver starts; they run."""
    names = []

    def launcher(kernel, *how):
        names.append(kernel.kernel.__name__)
        kernel(how[:3], how[3:6], how[6], how[8])
        return (0,)

    def specialized(kernel, gpu, args, shared, tiled):
        return SimpleNamespace(handle=Template(kernel, args))

    runtime = SimpleNamespace(getDevice=lambda: 0), fake_cupy.get_current_stream
    with (
        fake_cupy.arrays(),
        nothing_recorded(),
        patch.object(fake_cupy, "empty", garbage, create=True),
        patch.object(launch, "_driver", lambda: True),
        patch.object(launch, "_simulated", lambda: False),
        patch.object(launch, "capability", lambda: (8, 0)),
        patch.object(launch, "multiprocessors", lambda: 4),
        patch.object(launch, "_move", lambda a: fake_cupy.ndarray(a.copy())),
        patch.object(launch, "_equal", {}),
        patch.object(launch, "_kept", {}),
        patch.object(launch, "_arrivals", {}),
        patch.object(launch, "specialized", specialized),
        patch.object(driver, "_launcher", lambda: launcher),
        patch.object(driver, "_stream", lambda handle: handle),
        patch.object(driver, "_runtime", lambda: runtime),
        patch.object(driver, "enter", lambda gpu: None),
    ):
        yield names


RNG = np.random.default_rng(0)


def signs(*shape):
    return qa.encode(RNG.choice((-1, 1), shape), (-1, 1))


def codes(*shape):
    return qa.from_codes(RNG.integers(0, 4, shape), qa.uint2)


W, M, T = signs(40, 3, 3, 64), signs(30, 200), qa.Thresholds([-9, 0, 4], into=qa.uint2)
W20, W64, W1, W3 = signs(20, 1, 1, 64), signs(64, 3, 3, 64), signs(64, 1, 1, 64), signs(64, 3, 3, 3)
X = RNG.normal(size=(5, 3, 256)).astype(np.float32)
CALLS = {
    "conv2d": (lambda w, x: qa.conv2d(x, w, padding=1), W, lambda: signs(1, 5, 6, 64)),
    "conv2d to codes": (lambda w, x: qa.conv2d(x, w, padding=1, requantize=T), W, lambda: signs(1, 5, 6, 64)),
    "conv2d to half a word": (lambda w, x: qa.conv2d(x, w, requantize=T), W20, lambda: signs(1, 5, 6, 64)),
    "conv2d to words": (lambda w, x: qa.conv2d(x, w, padding=1, requantize=T), W64, lambda: signs(1, 5, 6, 64)),
    "conv2d to words by counting": (lambda w, x: qa.conv2d(x, w, requantize=T), W1, lambda: signs(1, 5, 6, 64)),
    "conv2d in groups to words": (
        lambda w, x: qa.conv2d(x, w, groups=2, padding=1, requantize=T), W64, lambda: signs(1, 4, 5, 128)),
    "conv2d in groups to parts of words": (
        lambda w, x: qa.conv2d(x, w, groups=4, requantize=T), W1, lambda: signs(1, 5, 5, 256)),
    "conv2d of few rows to words": (lambda w, x: qa.conv2d(x, w, requantize=T), W64, lambda: signs(1, 4, 5, 64)),
    "conv2d of bytes to words": (
        lambda w, x: qa.conv2d(x, w, requantize=T), W3, lambda: RNG.integers(0, 9, (1, 8, 8, 3)).astype(np.uint8)),
    "conv2d of codes": (lambda w, x: qa.conv2d(x, w, stride=2), W, lambda: codes(2, 5, 6, 64)),
    "conv2d of scaled codes": (lambda w, x: qa.conv2d(x, w), W, lambda: codes(1, 4, 4, 64) * 0.5),
    "conv2d in groups": (
        lambda w, x: qa.conv2d(x, w, groups=2, requantize=T), W, lambda: signs(1, 4, 4, 128)),
    "linear": (lambda w, x: qa.linear(x, w), M, lambda: signs(3, 200)),
    "quantize to signs": (lambda _, x: qa.quantize(x, qa.Sign()), None, lambda: RNG.normal(size=X.shape, scale=1)),
    "quantize": (lambda _, x: qa.quantize(x, qa.Uniform(4, step=0.1)), None, lambda: RNG.normal(size=X.shape)),
    "sum of rows": (lambda _, q: qa.sum(q, axis=1), None, lambda: codes(3, 300)),
    "sum": (lambda _, q: qa.sum(q), None, lambda: codes(3, 300)),
    "sum of scaled": (lambda _, q: qa.sum(q, axis=1), None, lambda: codes(3, 300) * np.float32(0.3)),
    "max_pool2d": (lambda _, q: qa.max_pool2d(q, 2), None, lambda: codes(2, 4, 6, 70)),
    "max_pool2d first": (
        lambda _, q: qa.max_pool2d(q, 2, data_format="NCHW"), None, lambda: qa.moveaxis(codes(2, 4, 6, 70), 3, 1)),
    "mean of rows": (lambda _, q: qa.mean(q, axis=1), None, lambda: codes(3, 300)),
    "q - 2": (lambda _, q: q - 2, None, lambda: codes(3, 70)),
    "3 - q": (lambda _, q: 3 - q, None, lambda: codes(3, 70)),
    "q * -0.5": (lambda _, q: q * -0.5, None, lambda: codes(3, 70)),
    "q > 1": (lambda _, q: q > 1, None, lambda: codes(3, 70)),
    "2.5 > q": (lambda _, q: qa.greater(2.5, q), None, lambda: codes(3, 70)),
    "q == 0": (lambda _, q: q == 0, None, lambda: codes(3, 70)),
    "avg_pool2d": (lambda _, q: qa.avg_pool2d(q, 2), None, lambda: codes(2, 4, 6, 70)),
    "avg_pool2d to codes": (
        lambda _, q: qa.avg_pool2d(q, 3, padding=1, requantize=T), None, lambda: codes(2, 4, 6, 64)),
    "q + p": (lambda _, x: x[0] + x[1], None, lambda: (codes(3, 70), codes(3, 70))),
    "q + p of many bits": (
        lambda _, x: x[0] + x[1], None, lambda: (qa.from_codes(RNG.integers(0, 64, (3, 70)), qa.uint6), codes(3, 70))),
    "q - p": (lambda _, x: x[0] - x[1], None, lambda: (codes(3, 70), codes(3, 70))),
    "q * p": (lambda _, x: x[0] * x[1], None, lambda: (codes(3, 70), codes(3, 70))),
    "q == p": (lambda _, x: x[0] == x[1], None, lambda: (codes(3, 70), codes(3, 70))),
    "q >= p": (lambda _, x: x[0] >= x[1], None, lambda: (codes(3, 70), codes(3, 70))),
    "larger": (lambda _, x: qa.maximum(x[0], x[1]), None, lambda: (codes(3, 70), codes(3, 70))),
    "a packed shortcut": (
        lambda w, x: qa.conv2d(x[0], w, padding=1, residual=x[1], requantize=T), W64,
        lambda: (signs(1, 5, 6, 64), codes(1, 5, 6, 64))),
    "a shortcut of integers": (
        lambda w, x: qa.conv2d(x[0], w, padding=1, residual=x[1], requantize=T, return_sum=True), W64,
        lambda: (signs(1, 5, 6, 64), RNG.integers(-99, 99, (1, 5, 6, 64)).astype(np.int32))),
    "a shortcut of floats": (
        lambda w, x: qa.conv2d(x[0], w, padding=1, residual=x[1]), W64,
        lambda: (signs(1, 5, 6, 64), RNG.normal(size=(1, 5, 6, 64)).astype(np.float32))),
    "a shortcut that is x": (
        lambda w, x: qa.conv2d(x, w, padding=1, residual=x, requantize=T), W64, lambda: signs(1, 5, 6, 64)),
    "q + 1": (lambda _, q: q + 1, None, lambda: codes(3, 70)),
    "1.5 + q": (lambda _, q: 1.5 + q, None, lambda: codes(3, 70)),
}  # fmt: skip


def values(result):
    """Return a result on the CPU, and all else that it has."""
    if isinstance(result, tuple):
        parts = [*map(values, result)]
        return np.concatenate([held.view(np.uint8).ravel() for held, *_ in parts]), *[rest for _, *rest in parts]
    if isinstance(result, qa.QuantArray):
        held = result.words.held if result.device != "cpu" else result.words
        return held, result.dtype, result.shape, result.axis, result.constants.key, result.scheme
    held = getattr(result, "held", result)
    return held, held.dtype, held.shape


@pytest.fixture
def ran(monkeypatch):
    """List the recorded calls that run."""
    calls, run = [], recorded.Recorded.__call__
    monkeypatch.setattr(recorded.Recorded, "__call__", lambda one, x: calls.append(one) or run(one, x))
    return calls


def to_gpu(x):
    return fake_cupy.asarray(x) if isinstance(x, np.ndarray) else x.to_device("cuda")


@pytest.mark.parametrize("name", CALLS)
def test_recorded_calls_are_equal(name, started, ran):
    """Calls after the second launch what the first did, give what it would, and keep their results apart."""
    call, w, draw = CALLS[name]
    on_gpu = None if w is None else w.to_device("cuda")
    names, pairs = [], []
    for _ in range(5):
        x = draw()
        x = x.astype(np.float32) if getattr(x, "dtype", None) == np.float64 else x
        moved = tuple(map(to_gpu, x)) if isinstance(x, tuple) else to_gpu(x)
        started.clear()
        pairs.append((values(call(on_gpu, moved)), values(call(w, x))))
        names.append(started.copy())
    for (got, *rest), (expected, *others) in pairs:
        np.testing.assert_array_equal(got, expected)
        assert rest == others
    assert names[2] == names[3] == names[4] == names[1]
    assert len(ran) >= 3, "the second call is recorded, or the third"


def test_recorded_calls_inside_a_recorded_call(started, ran):
    """The inner functions are part of the outer call, although they have recordings of their own."""

    def both(q):
        return qa.sum(qa.max_pool2d(q, 2) + 1, axis=3)

    for _ in range(4):
        q = codes(2, 4, 4, 70)
        both(q.to_device("cuda"))
    for _ in range(4):
        q = codes(2, 4, 4, 70)
        ran.clear()
        got = launched.by_key("both", both, q.to_device("cuda"))
        np.testing.assert_array_equal(got.held, both(q))
    assert len(ran) == 1


def test_wrong_arguments_beside_right_ones(started):
    x = codes(1, 4, 4, 70).to_device("cuda")
    for _ in range(3):
        qa.max_pool2d(x, (2, 2), stride=2)
    for wrong in ({"size": (2.0, 2)}, {"size": (2, 2), "stride": 2.0}, {"size": (2, 2), "stride": (2.0, 2)}):
        with pytest.raises(TypeError):
            qa.max_pool2d(x, **wrong)


@pytest.mark.parametrize(
    "other", [np.float32(0.1), 0.1, np.float64(0.1), [[0.5]], np.ones((3, 1)), (1.5,), True, 1, 1.0]
)
def test_other_operands_are_told_apart(other, started):
    """By their types too, as NumPy tells them apart; what has no hash is not looked up."""
    q = codes(3, 70)
    on_gpu = q.to_device("cuda")
    for _ in range(4):
        for call in (qa.add, qa.subtract, qa.multiply, qa.equal, qa.greater):
            (got, *rest), (expected, *others) = values(call(on_gpu, other)), values(call(q, other))
            np.testing.assert_array_equal(got, expected)
            assert rest == others


def test_many_constants_are_no_key(started, ran):
    q = codes(1100, 64) * RNG.integers(1, 5, (1100, 1)).astype(np.float32)
    assert q.constants.key is None and (q[:1000] * 1).constants.key is not None
    on_gpu = q.to_device("cuda")
    for _ in range(3):
        np.testing.assert_array_equal(qa.sum(on_gpu, axis=1).held, qa.sum(q, axis=1))
    assert not ran


def test_a_nan_is_seen_by_a_recorded_call(started, ran):
    x = fake_cupy.asarray(X)
    for _ in range(4):
        qa.quantize(x, qa.Uniform(4, step=0.25))
    bad = fake_cupy.asarray(np.where(np.arange(X.size).reshape(X.shape) == 700, np.float32(np.nan), X))
    before = len(ran)
    for _ in range(2):
        with pytest.raises(ValueError, match="NaN"):
            qa.quantize(bad, qa.Uniform(4, step=0.25))
    assert len(ran) == before + 2
    got = qa.quantize(x, qa.Uniform(4, step=0.25))
    np.testing.assert_array_equal(got.words.held, qa.quantize(X, qa.Uniform(4, step=0.25)).words)


def test_a_sum_beyond_int32_is_seen_by_a_recorded_call(started, ran):
    x, w = signs(1, 5, 6, 64).to_device("cuda"), W64.to_device("cuda")
    shortcut = np.zeros((1, 5, 6, 64), np.int32)
    for _ in range(4):
        qa.conv2d(x, w, padding=1, residual=fake_cupy.asarray(shortcut), requantize=T)
    shortcut[...] = 2**31 - 1
    before = len(ran)
    for _ in range(2):
        with pytest.raises(OverflowError, match="residual"):
            qa.conv2d(x, w, padding=1, residual=fake_cupy.asarray(shortcut), requantize=T)
    assert len(ran) == before + 2


def test_a_recorded_call_holds_no_operand(started):
    """The call is in the cache of the weights: held there, they would be freed by the collector of cycles alone."""
    x, w, shortcut = signs(1, 5, 6, 64).to_device("cuda"), W64.to_device("cuda"), signs(1, 5, 6, 64).to_device("cuda")
    counts = [sys.getrefcount(a) for a in (x, w, shortcut, x.words, shortcut.words)]
    gc.disable()
    try:
        for _ in range(4):
            qa.conv2d(x, w, padding=1, residual=shortcut, requantize=T)
            x + shortcut
        assert [sys.getrefcount(a) for a in (x, w, shortcut, x.words, shortcut.words)] == counts
    finally:
        gc.enable()


def test_a_call_with_no_room_is_called_again(started, ran, monkeypatch):
    """Raise what the function itself raises, which names what there is no room for."""
    x, w = signs(3, 200).to_device("cuda"), M.to_device("cuda")
    for _ in range(3):
        qa.linear(x, w)

    def no_room(*form):
        raise MemoryError

    monkeypatch.setattr(ran[-1], "_makers", [(no_room, ())])
    before = len(started)
    np.testing.assert_array_equal(qa.linear(x, w).held, qa.linear(qa.asnumpy(x), M))
    assert len(started) == before + 1


def test_a_call_inside_another_launch_has_parameters_of_its_own(started, monkeypatch):
    """So does a thread that comes between the writing of addresses and the launch."""
    w, one, other = M.to_device("cuda"), signs(3, 200), signs(3, 200)
    there, elsewhere = one.to_device("cuda"), other.to_device("cuda")
    for _ in range(3):
        qa.linear(there, w)
    results, enqueue = [], driver.enqueue

    def interrupted(*how):
        monkeypatch.setattr(driver, "enqueue", enqueue)
        results.append(qa.linear(elsewhere, w))
        enqueue(*how)

    monkeypatch.setattr(driver, "enqueue", interrupted)
    results.append(qa.linear(there, w))
    for got, x in zip(results, (other, one), strict=True):
        np.testing.assert_array_equal(got.held, qa.linear(x, M))


def test_what_is_no_plan_is_called(started, ran):
    """Views with gaps, arrays that begin elsewhere, axes that are counted on the host, and other constants."""
    q = codes(4, 130)
    on_gpu = q.to_device("cuda")
    for view in (lambda q: q[:, 64:], lambda q: q[1:3]):
        for _ in range(4):
            assert qa.sum(view(on_gpu), axis=1).held.tolist() == qa.sum(view(q), axis=1).tolist()
    for _ in range(3):
        assert qa.sum(on_gpu, axis=0).held.tolist() == qa.sum(q, axis=0).tolist()
    scales = np.float32([0.25, 0.5, 3])
    for scale in (*scales, *scales, *scales):
        got, expected = qa.sum(on_gpu * scale, axis=1), qa.sum(q * scale, axis=1)
        assert got.held.tolist() == expected.tolist()
    assert qa.sum(on_gpu, axis=1, keepdims=True).shape == (4, 1)
    for wrong in (2, 1.0, "1"):
        with pytest.raises((TypeError, ValueError)):
            qa.sum(on_gpu, axis=wrong)


def test_a_captured_graph_launches_on_counters_of_its_own(started, monkeypatch):
    """Sums of long rows count arrivals: a recorded call asks for the counters of where it runs."""
    monkeypatch.setattr("quantarray.cuda.reduction.total.STRETCH", 1)
    asked, arrivals = [], launch.arrivals
    monkeypatch.setattr(launch, "arrivals", lambda count: asked.append(arrivals(count)) or asked[-1])
    q = codes(2, 300)
    on_gpu = q.to_device("cuda")
    for _ in range(3):
        assert qa.sum(on_gpu, axis=1).held.tolist() == qa.sum(q, axis=1).tolist()
    with launch.holding() as held:
        assert qa.sum(on_gpu, axis=1).held.tolist() == qa.sum(q, axis=1).tolist()
    assert any(isinstance(one, recorded.Recorded) for one in held), "whose constants the graph keeps"
    assert held.arrivals and asked[-1] is next(iter(held.arrivals.values())) is not asked[-2]
