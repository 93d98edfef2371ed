"""Contenders on the GPU. As in `benchmarks.cpu.contenders`, an entry's call does what each new input needs."""

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
from .calls import Call
from .capture import by_cupy, by_torch
from .limits import copied

ROWS = 32  # of a product's first and last rows, which are compared: all of them would take the CPU minutes


class Entry(NamedTuple):
    """`call` on an input on the device, `moved` from an input on the host to a result on the host.

    `read` makes either result comparable; `tolerance` is relative to the largest expected magnitude;
    `capture(call, count)` makes a graph of calls.
    """

    call: Callable[[], Any]
    moved: Callable[[], Any]
    read: Callable[[Any], np.ndarray]
    capture: Callable[[Callable[[], Any], int], Callable[[], Any]]
    tolerance: float = 0.0
    environment: Mapping[str, str] = MappingProxyType({})


def entry(host, load, run, save, read, capture, tolerance=0.0):
    """Time run(x) alone on x = load(host), and save(run(load(host))); weights are on the device for both."""
    x = load(host)
    return Entry(lambda: run(x), lambda: save(run(load(host))), read, capture, tolerance)


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
    if isinstance(case, Call):
        return {OURS: partial(call, case, xp), "PyTorch fp16": partial(torchs_call, case)}
    makers = {OURS: partial(ours, case, xp)}
    makers |= {f"{OURS} {units}": partial(forced, case, xp, units) for units in isa.UNITS}
    return makers | {title: partial(maker, case) for title, maker in PEERS[type(case)].items()}


def is_ours(title):
    return title.startswith(OURS)


@lru_cache(1)
def packed(case):
    """Pack both operands of a case on the CPU."""
    return tuple(qa.encode(a, values=levels(1)) for a in case.inputs().values())


def ours(case, xp):
    if isinstance(case, Pack):
        return entry(
            case.inputs()["x"],
            xp.asarray,
            lambda x: qa.quantize(x, qa.Sign()),
            qa.asnumpy,
            lambda q: qa.asnumpy(q.codes()) != 0,
            _waits,
        )
    x, w = packed(case)
    w = w.to_device("cuda")
    if isinstance(case, Product):
        return entry(x, _to_device, lambda x: qa.linear(x, w), qa.asnumpy, ends, by_cupy(xp))
    cut = qa.Thresholds([0])
    return entry(
        x,
        _to_device,
        lambda x: qa.conv2d(x, w, padding=1, requantize=cut),
        qa.asnumpy,
        lambda y: qa.asnumpy(y).codes() != 0,
        by_cupy(xp),
    )


def _to_device(x):
    return x.to_device("cuda")


def forced(case, xp, units):
    """Build our entry on the units of that name, which may differ from the ones chosen for the shape."""
    with patch.dict(os.environ, {isa.VARIABLE: units}):
        isa.best(first_gpu("gpu")[1])  # an error where this GPU lacks them
    return ours(case, xp)._replace(environment={isa.VARIABLE: units})


def _waits(call, count):
    raise RuntimeError("it waits for the answer whether there is a NaN")


def network(case, xp):
    """Build an entry of a network, from raw inputs to scores.

    Its graph includes a copy of the inputs and one launch a call.
    """
    layers, host = qa.nn.load_network(case.path).to_device("cuda"), case.inputs()["x"]

    def capture(call, count):
        x = xp.asarray(host)
        graph = layers.graph(x)
        return lambda: [graph(x) for _ in range(count)]

    return entry(
        host,
        xp.asarray,
        layers,
        qa.asnumpy,
        _values,
        capture,
    )


def pack_kernel(case, xp):
    """Build an entry of packing without the check for NaN, for whose answer the host would wait."""
    host = case.inputs()["x"]
    rows, length = host.shape
    device = device_of(xp.asarray(host[:1]))
    out, nan = empty(device, (1, rows, -(-length // 64))), zeros(device, (1,), np.bool_)
    tables = np.zeros((1, 1, 1), np.float32), np.arange(2, dtype=np.uint8).reshape(1, 1, 2), np.zeros(1, np.int64)
    encode = import_module("quantarray.backends.registry").kernel(device, "encode")

    def run(x):
        encode(x[..., None], *tables, length, nan, out)
        return out

    def read(words):
        return qa.from_words(qa.asnumpy(words), qa.uint1, host.shape).codes() != 0

    return entry(host, xp.asarray, run, qa.asnumpy, read, by_cupy(xp))


def call(case, xp):
    """Build an entry of a call of one array, packed on the device unless the call packs it."""
    host = case.inputs()["x"] if case.packs else qa.encode(case.inputs()["x"], levels(1))
    load = xp.asarray if case.packs else _to_device
    capture = _waits if case.packs else by_cupy(xp)
    return entry(host, load, case.ours, qa.asnumpy, _values, capture)


def _values(y):
    return qa.asnumpy(y.dequantize() if isinstance(y, qa.QuantArray) else y)


def torchs_call(case):
    """Build an entry of PyTorch's call of a float16 tensor."""
    import torch

    return entry(
        case.inputs()["x"], lambda a: torch.from_numpy(a).cuda().half(), case.torchs, _to_host,
        lambda y: y.float().cpu().numpy(), by_torch,
    )  # fmt: skip


def copy(case, xp):
    """Build an entry that copies the input within the device: packing reads as many bytes."""
    host = case.inputs()["x"]
    target = xp.empty(host.shape, host.dtype)
    return entry(
        host, xp.asarray, lambda x: copied(xp, x, target), qa.asnumpy, lambda y: qa.asnumpy(y) >= 0, by_cupy(xp)
    )


def convolution(case):
    """Build an entry of PyTorch's channels-last float16 convolution (cuDNN), with float16 out.

    All sums are whole numbers, whatever the algorithm.
    """
    import torch

    def load(a):
        return torch.from_numpy(a).cuda().half().permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)

    x, w = case.inputs().values()
    w = load(w)
    torch.backends.cudnn.benchmark = True
    return entry(
        x,
        load,
        lambda x: torch.nn.functional.conv2d(x, w, padding=1),
        _to_host,
        lambda y: np.rint(y.permute(0, 2, 3, 1).float().cpu().numpy()) > 0,
        by_torch,
    )


def byte_convolution(case):
    """Build an entry of the int8 matrix product of a convolution, whose windows are copied before: PyTorch has no int8
    convolution."""
    import torch

    x, w = case.inputs().values()
    w = torch.from_numpy(w).cuda()
    weights, side = w.reshape(len(w), -1).T, case.kernel // 2

    def load(x):
        padded = torch.nn.functional.pad(torch.from_numpy(x).cuda(), (0, 0, side, side, side, side))
        windows = padded.unfold(1, case.kernel, 1).unfold(2, case.kernel, 1).permute(0, 1, 2, 4, 5, 3)
        return windows.reshape(-1, weights.shape[0]).contiguous()

    return entry(
        x,
        load,
        lambda rows: torch._int_mm(rows, weights),
        _to_host,
        lambda y: y.cpu().numpy().reshape(*case.shapes[2]) > 0,
        by_torch,
    )


def half_product(case):
    import torch

    x, w = case.inputs().values()
    w = torch.from_numpy(w).cuda().half()
    return entry(
        x,
        lambda x: torch.from_numpy(x).cuda().half(),
        lambda x: x @ w.T,
        _to_host,
        lambda y: ends(y.float()),
        by_torch,
        2**-10,
    )


def byte_product(case):
    import torch

    x, w = case.inputs().values()
    w = torch.from_numpy(w).cuda()
    return entry(x, lambda x: torch.from_numpy(x).cuda(), lambda x: torch._int_mm(x, w.T), _to_host, ends, by_torch)


def _to_host(y):
    return y.cpu()


PEERS = {
    Conv: {"cuDNN fp16": convolution, "cuBLAS int8, windows given": byte_convolution},
    Product: {"cuBLAS fp16": half_product, "cuBLAS int8": byte_product},
}


def expected(case):
    if not isinstance(case, Product):
        return case.expected()
    x, w = (case.inputs()[name] for name in "xw")
    return (ends(x).astype(np.float32) @ w.astype(np.float32).T).astype(np.int32)


def ends(a):
    """Return the first and the last `ROWS` rows, on the CPU; all rows if they are few."""
    parts = [a] if len(a) <= 2 * ROWS else [a[:ROWS], a[-ROWS:]]
    return np.concatenate([part.cpu().numpy() if hasattr(part, "cpu") else qa.asnumpy(part) for part in parts])
