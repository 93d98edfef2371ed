"""Vary one choice of a kernel at a time: tiles, stages, and the proxy fence of `wgmma`. Outputs are compared."""

import os
import time
from contextlib import contextmanager
from importlib import import_module
from unittest.mock import patch

import numpy as np

import quantarray as qa
from quantarray.backends.registry import cupy, first_gpu
from quantarray.cuda.runtime import isa

from . import capture, clock
from .profile import call_of

_ROUNDS, _CALLS = 5, 20
PRODUCTS = ("linear", "conv")


def units():
    """List the tensor-core units with tiles that this GPU has, without those that an earlier step turned off."""
    capability, names = first_gpu("gpu")[1], []
    for name in ("bmma", "wgmma"):
        if name == "wgmma" and os.environ.get("QUANTARRAY_PLAN_WGMMA") == "no":
            continue
        with patch.dict(os.environ, {isa.VARIABLE: name}):
            try:
                isa.best(capability)
                names.append(name)
            except qa.DeviceError:
                continue
    return names


def tiles(seconds):
    """Time each tile of each kernel on the large product and the convolution."""
    rows, end = [], time.monotonic() + 0.8 * seconds
    for name in units():
        for n in range(len(import_module(f"quantarray.cuda.tensor_cores.{name}").TILES)):
            with patch.dict(os.environ, {isa.TILE: str(n)}):
                rows += _timed(name, {"tile": n}, end)
    return rows


def stages(seconds):
    """3 stages to as many as fit, of the largest tile; and `wgmma` without its fence, whose results may be wrong."""
    rows, end = [], time.monotonic() + 0.8 * seconds
    for name in units():
        module = import_module(f"quantarray.cuda.tensor_cores.{name}")
        for count in range(3, module.TILES[0].stages + 1):
            tile = module.TILES[0]._replace(stages=count)
            with patch.object(module, "tile_for", lambda *shape, tile=tile: (tile, 1)):
                rows += _timed(name, {"stages": count}, end)
    if "wgmma" in units():
        with without_fence():
            rows += _timed("wgmma", {"fence": False}, end, check=False)
    return rows


@contextmanager
def without_fence():
    """`wgmma` compiled again without its proxy fence."""
    from numba import cuda

    from quantarray.cuda.tensor_cores import warpgroup, wgmma

    @cuda.jit(device=True, forceinline=True)
    def nothing():
        pass

    wgmma._kernel.cache_clear()
    with patch.object(warpgroup, "fence_copies", nothing):
        yield
    wgmma._kernel.cache_clear()


def _timed(name, what, end, check=True):
    xp, rows = cupy("gpu"), []
    for case in PRODUCTS:
        if time.monotonic() > end:
            rows.append({"units": name, "case": case, **what, "error": "no time was left"})
            continue
        try:
            call = call_of(name if case == "linear" else case, xp)
            with patch.dict(os.environ, {isa.VARIABLE: name}):
                graph = capture.by_cupy(xp)(call, _CALLS)  # a call from Python takes longer than most kernels
                seconds = clock.seconds(xp, graph, _ROUNDS) / _CALLS
                rows.append({"units": name, "case": case, **what, "seconds": seconds})
                if check:
                    rows[-1]["equal"] = _equal(call, name)
        except Exception as error:
            rows.append({"units": name, "case": case, **what, "error": f"{type(error).__name__}: {error}"})
        print(rows[-1], flush=True)
    return rows


def _equal(call, name):
    """Compare the result with that of the `popc` kernel and return True if they are equal."""
    got = call()
    with patch.dict(os.environ, {isa.VARIABLE: "popc"}):
        expected = call()
    pairs = [qa.asnumpy(x.words if isinstance(x, qa.QuantArray) else x) for x in (got, expected)]
    return bool(np.array_equal(*pairs))
