"""Who is timed on the GPU. As in `benchmarks.cpu.contenders`, an entry's call is what each new input costs."""

import os
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

import quantarray as qa
from quantarray.backends.registry import device_of, empty, first_gpu, zeros
from quantarray.cuda.runtime import isa

from ..cpu.cases import Conv, Network, Pack, Product, levels
from ..cpu.contenders import OURS
from .capture import by_cupy, by_torch

ROWS = 32  # of a product's first and last rows, which are compared: all of them would take the CPU minutes


class Entry(NamedTuple):
    """`tolerance` is relative to the largest expected magnitude; `capture(call, count)` makes a graph of calls."""

    call: Callable[[], Any]
    read: Callable[[Any], np.ndarray]
    capture: Callable[[Callable[[], Any], int], Callable[[], Any]]
    tolerance: float = 0.0
    environment: Mapping[str, str] = MappingProxyType({})


def makers(case, xp):
    """{title: what makes its Entry, or raises why it cannot}; xp is CuPy."""
    if isinstance(case, Network):
        return {OURS: partial(network, case, xp)}
    if isinstance(case, Pack):
        return {
            OURS: partial(ours, case, xp),
            f"{OURS}, the kernel": partial(pack_kernel, case, xp),
            "device copy": partial(copy, case, xp),
        }
    made = {OURS: partial(ours, case, xp)}
    made |= {f"{OURS} {units}": partial(forced, case, xp, units) for units in isa.UNITS}
    return made | {title: partial(maker, case) for title, maker in PEERS[type(case)].items()}


def is_ours(title):
    return title.startswith(OURS)


@lru_cache(1)
def packed(case):
    """Both operands of a case, packed on the CPU."""
    return tuple(qa.encode(a, values=levels(1)) for a in case.inputs().values())


def ours(case, xp):
    if isinstance(case, Pack):
        x = xp.asarray(case.inputs()["x"])
        return Entry(lambda: qa.quantize(x, qa.Sign()), lambda q: qa.asnumpy(q.codes()) != 0, _waits)
    x, w = (a.to_device("cuda") for a in packed(case))
    if isinstance(case, Product):
        return Entry(lambda: qa.linear(x, w), ends, by_cupy(xp))
    cut = qa.Thresholds([0])
    return Entry(lambda: qa.conv2d(x, w, padding=1, requantize=cut), lambda y: qa.asnumpy(y).codes() != 0, by_cupy(xp))


def forced(case, xp, units):
    """Ours by the units of that name, whatever suits the shape."""
    with patch.dict(os.environ, {isa.VARIABLE: units}):
        isa.best(first_gpu("gpu")[1])  # an error where this GPU lacks them
    return ours(case, xp)._replace(environment={isa.VARIABLE: units})


def _waits(call, count):
    raise RuntimeError("it waits for the answer whether there is a NaN")


def network(case, xp):
    """Raw inputs to scores; as a graph with what its caller pays too, a copy of the inputs and a launch each."""
    made, x = qa.nn.load_network(case.path).to_device("cuda"), xp.asarray(case.inputs()["x"])

    def capture(call, count):
        graph = made.graph(x)
        return lambda: [graph(x) for _ in range(count)]

    return Entry(
        lambda: made(x),
        lambda y: qa.asnumpy(y.dequantize() if isinstance(y, qa.QuantArray) else y),
        capture,
    )


def pack_kernel(case, xp):
    """Packing without the question whether there is a NaN, whose answer is waited for."""
    x = xp.asarray(case.inputs()["x"])
    device, (rows, length) = device_of(x), x.shape
    out, nan = empty(device, (1, rows, -(-length // 64))), zeros(device, (1,), np.bool_)
    tables = np.zeros((1, 1, 1), np.float32), np.arange(2, dtype=np.uint8).reshape(1, 1, 2), np.zeros(1, np.int64)
    run = import_module("quantarray.backends.registry").kernel(device, "encode")

    def call():
        run(x[..., None], *tables, length, nan, out)
        return out

    return Entry(call, lambda y: qa.from_words(qa.asnumpy(y), qa.uint1, x.shape).codes() != 0, by_cupy(xp))


def copy(case, xp):
    """A read and a write of as many bytes as packing reads."""
    x = xp.asarray(case.inputs()["x"])
    return Entry(x.copy, lambda y: qa.asnumpy(y) >= 0, by_cupy(xp))


def convolution(case):
    """PyTorch's channels-last fp16, that is cuDNN's, to floats. Sums are whole numbers, whatever the algorithm."""
    import torch

    x, w = (
        torch.from_numpy(a).cuda().half().permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
        for a in case.inputs().values()
    )
    torch.backends.cudnn.benchmark = True
    return Entry(
        lambda: torch.nn.functional.conv2d(x, w, padding=1),
        lambda y: np.rint(y.permute(0, 2, 3, 1).float().cpu().numpy()) > 0,
        by_torch,
    )


def byte_convolution(case):
    """The matrix product of a convolution of bytes, of windows copied side by side before: PyTorch has none."""
    import torch

    x, w = (torch.from_numpy(a).cuda() for a in case.inputs().values())
    side = case.kernel // 2
    padded = torch.nn.functional.pad(x, (0, 0, side, side, side, side))
    windows = padded.unfold(1, case.kernel, 1).unfold(2, case.kernel, 1).permute(0, 1, 2, 4, 5, 3)
    rows, weights = windows.reshape(-1, w[0].numel()).contiguous(), w.reshape(len(w), -1).T
    return Entry(
        lambda: torch._int_mm(rows, weights),
        lambda y: y.cpu().numpy().reshape(*case.shapes[2]) > 0,
        by_torch,
    )


def half_product(case):
    import torch

    x, w = (torch.from_numpy(a).cuda().half() for a in case.inputs().values())
    return Entry(lambda: x @ w.T, lambda y: ends(y.float()), by_torch, 2**-10)


def byte_product(case):
    import torch

    x, w = (torch.from_numpy(a).cuda() for a in case.inputs().values())
    return Entry(lambda: torch._int_mm(x, w.T), ends, by_torch)


PEERS = {
    Conv: {"cuDNN fp16": convolution, "cuBLAS int8, windows given": byte_convolution},
    Product: {"cuBLAS fp16": half_product, "cuBLAS int8": byte_product},
}


def expected(case):
    if not isinstance(case, Product):
        return case.expected()
    given = case.inputs()
    return (ends(given["x"]).astype(np.float32) @ given["w"].astype(np.float32).T).astype(np.int32)


def ends(a):
    """The first and the last rows, on the CPU."""
    parts = [a] if len(a) <= 2 * ROWS else [a[:ROWS], a[-ROWS:]]
    return np.concatenate([part.cpu().numpy() if hasattr(part, "cpu") else qa.asnumpy(part) for part in parts])
