"""Modules that `from_torch` takes run on a GPU, by a stand-in for CuPy: as on the CPU, or refused by name."""

import fake_cupy
import numpy as np
import pytest
from torch_modules import module

import quantarray as qa
from quantarray.core.errors import DeviceError


@pytest.mark.parametrize("seed", range(12))
def test_modules(seed):
    rng = np.random.default_rng(seed)
    net, x = module(rng)
    try:
        graph = qa.nn.from_torch(net, x[:1])
    except ValueError as error:
        pytest.skip(str(error))
    expected = graph(x.numpy())
    with fake_cupy.gpu() as xp, np.errstate(all="ignore"):
        try:
            got = graph.to_device("cuda")(xp.asarray(x.numpy()))
        except DeviceError as error:
            if "need the package numba_cuda" in str(error):  # which this environment lacks
                pytest.skip(str(error))
            assert "run on the CPU alone" in str(error)
            return
        named = got if isinstance(got, dict) else {"": got}
        wanted = expected if isinstance(expected, dict) else {"": expected}
        for name, a in named.items():
            np.testing.assert_array_equal(
                *(v.codes() if isinstance(v, qa.QuantArray) else v for v in (qa.asnumpy(a), wanted[name]))
            )
