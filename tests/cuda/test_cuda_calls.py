"""Python's work in front of a launch, with a driver that starts nothing."""

import numpy as np
import pytest

pytest.importorskip("numba_cuda")

import fake_cupy
import stubbed_gpu

import quantarray as qa

RNG = np.random.default_rng(0)
MOST = 60  # calls of functions, built-in ones too, of a call that was recorded


def signs(*shape):
    return qa.encode(RNG.choice((-1, 1), shape), (-1, 1))


T = qa.Thresholds([0])
OPERANDS = {"x": signs(1, 14, 14, 64), "w": signs(64, 3, 3, 64), "a": signs(8, 512), "m": signs(512, 512)}
VALUES = RNG.normal(size=(64, 1024)).astype(np.float32)
CALLS = {
    "conv2d": lambda x, w, a, m, v: qa.conv2d(x, w, padding=1),
    "conv2d to bits": lambda x, w, a, m, v: qa.conv2d(x, w, padding=1, requantize=T),
    "linear": lambda x, w, a, m, v: qa.linear(a, m),
    "quantize": lambda x, w, a, m, v: qa.quantize(v, qa.Sign()),
    "sum of rows": lambda x, w, a, m, v: qa.sum(a, axis=1),
    "sum": lambda x, w, a, m, v: qa.sum(a),
    "max_pool2d": lambda x, w, a, m, v: qa.max_pool2d(x, 2),
    "q + 1": lambda x, w, a, m, v: a + 1,
    "q + p": lambda x, w, a, m, v: a + a,
    "q == p": lambda x, w, a, m, v: a == a,
    "avg_pool2d": lambda x, w, a, m, v: qa.avg_pool2d(x, 2),
    "conv2d of a shortcut": lambda x, w, a, m, v: qa.conv2d(x, w, padding=1, residual=x, requantize=T),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_in_front_of_a_launch(name):
    """The launch is the one of the first call, which lays weights out before it."""
    with stubbed_gpu.stubbed() as (xp, started):
        operands = [*(q.to_device("cuda") for q in OPERANDS.values()), xp.asarray(VALUES)]
        starts = []
        for _ in range(4):
            started.clear()
            CALLS[name](*operands)
            starts.append([how[:9] for how in started])
        number = stubbed_gpu.counted(lambda: CALLS[name](*operands))
    print(f"{name}: {number} calls")
    assert starts[1] == starts[2] == starts[3] == starts[0][-1:] and bool(starts[1]) == (name != "q + 1")
    assert 10 < number <= MOST


SHORTCUTS = {
    "packed": lambda xp: signs(2, 14, 14, 64).to_device("cuda"),
    **{
        name: lambda xp, name=name: xp.asarray(np.zeros((2, 14, 14, 64), name)) for name in ("int8", "int32", "float32")
    },
}


@pytest.mark.parametrize("how", [{}, {"requantize": T}, {"requantize": T, "return_sum": True}], ids=str)
@pytest.mark.parametrize("name", SHORTCUTS)
def test_a_shortcut_costs_no_launch(name, how):
    """Nothing is copied, and only the flag of sums that might not fit int32 is cleared."""
    with stubbed_gpu.stubbed() as (xp, started):
        x, w = signs(2, 14, 14, 64).to_device("cuda"), OPERANDS["w"].to_device("cuda")
        shortcut = SHORTCUTS[name](xp)
        for _ in range(3):
            started.clear()
            fake_cupy.launches.clear()
            qa.conv2d(x, w, padding=1, residual=shortcut, **how)
    (start,) = started
    assert start[0].py_func.__name__ == "bmma_tile"
    assert fake_cupy.launches == ["zeros"] * (name == "int32")
