"""A trained network on CUDA kernels alone, in the tiles that are shipped: the scores of its file, to the last bit."""

from pathlib import Path

import numpy as np
from cuda_backend import twins

from quantarray.cuda import launch
from quantarray.nn import load_network

DIGITS = Path(__file__).parents[1] / "quantarray" / "data" / "digits.npz"


def test_digits(monkeypatch):
    launched, run = [], launch.run

    def note(kernel, *args):
        launched.append(kernel.__name__)
        run(kernel, *args)

    monkeypatch.setattr(launch, "run", note)
    with twins():
        net = load_network(DIGITS)
        scores = net(net.plain.input[:1])
    np.testing.assert_array_equal(scores, net.plain.expected[:1])
    assert launched.count("integer_tile") == 4 and launched.count("pool") == 2
