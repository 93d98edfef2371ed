"""A trained network on CUDA kernels alone, in the tiles that are shipped: the scores of its file, to the last bit."""

import numpy as np
import pytest
from cuda_backend import twins
from paths import PACKAGED

import quantarray as qa
from quantarray.cuda.runtime import launch
from quantarray.nn import load_network


@pytest.fixture
def moved(monkeypatch):
    """The arrays that are moved to the device for kernels."""
    found, move = [], launch._move
    monkeypatch.setattr(launch, "_move", lambda a: (found.append(a.shape), move(a))[1])
    return found


def test_digits(monkeypatch, moved):
    launched, run = [], launch.run

    def note(kernel, *args, **how):
        launched.append(kernel.__name__)
        run(kernel, *args, **how)

    monkeypatch.setattr(launch, "run", note)
    with twins():
        net = load_network(PACKAGED)
        scores = net(net.plain.input[:1])
        assert moved
        del moved[:], launched[:]
        again = net(net.plain.input[:1])
    np.testing.assert_array_equal(scores, net.plain.expected[:1])
    np.testing.assert_array_equal(again, net.plain.expected[:1])
    assert launched.count("integer_tile") == launched.count("few_rows") == 2 and launched.count("pool") == 2
    assert moved == []


def test_what_calls_make_anew_is_not_moved_anew(moved):
    """Constants of float products and of average pooling, tables of sums: equal to those of the last call."""
    rng = np.random.default_rng(0)
    x = qa.encode(rng.choice((-1, 1), (1, 4, 4, 33)), (-1, 1))
    w = qa.encode(rng.choice((-1, 1), (3, 1, 1, 33)), (-1, 1)) * np.float32(0.5)
    cut, rows = qa.Thresholds([0.25]), np.ones((600, 3), np.float32)
    calls = (
        lambda: qa.conv2d(x, w), lambda: qa.linear(x[0, 0], w[:, 0, 0]), lambda: qa.add(x, x).words,
        lambda: qa.avg_pool2d(x, 2), lambda: qa.avg_pool2d(x, 2, requantize=cut).words,
        lambda: qa.quantize(rows, qa.Sign()).words,
    )  # fmt: skip
    with twins():
        first = [call() for call in calls]
        assert moved
        del moved[:]
        second = [call() for call in calls]
    assert moved == []
    assert all(map(np.array_equal, first, second))


def test_what_a_graph_holds_stays():
    a = np.arange(2000.0)
    with launch.holding() as held:
        launch.resident(a)
        small = launch.resident(np.arange(3))
    assert len(held) == 2 and held[1] is small
    launch.resident(np.arange(4))
    assert len(held) == 2


def test_small_arrays_are_moved_once_by_what_they_hold(moved, monkeypatch):
    monkeypatch.setattr(launch, "_MOST_EQUAL", 2)
    monkeypatch.setattr(launch, "_equal", {})
    for a in ([0, 0], [0, 0], [0, 1], [0.0, 0.0], [[0, 0]], [0, 0]):
        found = launch.resident(np.array(a))
        assert found.dtype == np.array(a).dtype and found.tolist() == a
    assert len(moved) == 5 and len(launch._equal) == 2  # the last was dropped before it was asked for
