"""Who is timed on the GPU. As in `benchmarks.cpu.contenders`, an entry's call is what each new input costs."""

import os
from unittest.mock import patch

import numpy as np

import quantarray as qa
from quantarray.cuda import isa
from quantarray.device import first_gpu

from ..cpu.cases import Conv, Network, Pack, Product, levels
from ..cpu.contenders import OURS, Entry, attempt

ROWS = 32  # of a product's first and last rows, which are compared: all of them would take the CPU minutes
FP16, INT8, COPY = "cuDNN fp16", "cuBLAS int8", "device copy"
GRAPH = f"{OURS}, one graph"


def entries(case, xp):
    """{title: Entry, or the line that says why it does not take part}; xp is CuPy."""
    if isinstance(case, Network):
        return {OURS: attempt(network, case, xp, False), GRAPH: attempt(network, case, xp, True)}
    made = {OURS: attempt(ours, case, xp)}
    if isinstance(case, Pack):
        made[COPY] = attempt(copy, case, xp)
    else:
        made |= {f"{OURS} {units}": attempt(forced, case, xp, units) for units in isa.UNITS}
        made |= {title: attempt(peer, case) for title, peer in (peers(case)).items()}
    return made


def peers(case):
    return {FP16: convolution} if isinstance(case, Conv) else {FP16: half_product, INT8: byte_product}


def ours(case, xp):
    given = {name: xp.asarray(a) for name, a in case.inputs().items()}
    if isinstance(case, Pack):
        return Entry(lambda: qa.quantize(given["x"], qa.Sign()), lambda q: qa.asnumpy(q.codes()) != 0)
    x, w = (qa.encode(a, values=levels(1)).to_device("cuda") for a in case.inputs().values())
    if isinstance(case, Product):
        return Entry(lambda: qa.linear(x, w), lambda y: ends(qa.asnumpy(y)))
    cut = qa.Thresholds([0])
    return Entry(lambda: qa.conv2d(x, w, padding=1, requantize=cut), lambda y: qa.asnumpy(y).codes() != 0)


def forced(case, xp, units):
    """Ours by the units of that name, whatever suits the shape."""

    def call():
        with patch.dict(os.environ, {isa.VARIABLE: units}):
            return entry.call()

    with patch.dict(os.environ, {isa.VARIABLE: units}):
        isa.best(first_gpu("gpu")[1])  # an error where this GPU lacks them
    entry = ours(case, xp)
    return entry._replace(call=call)


def network(case, xp, whole):
    """Raw inputs to scores, layer by layer or as one CUDA graph."""
    made, x = qa.nn.load_network(case.path).to_device("cuda"), xp.asarray(case.inputs()["x"])
    run = made.graph(x) if whole else made
    return Entry(lambda: run(x), lambda y: qa.asnumpy(y.dequantize() if isinstance(y, qa.QuantArray) else y))


def copy(case, xp):
    """A read and a write of the same number of bytes as packing reads."""
    x = xp.asarray(case.inputs()["x"])
    return Entry(x.copy, lambda y: qa.asnumpy(y) >= 0)


def convolution(case):
    """PyTorch's channels-last fp16, that is cuDNN's: what is not compared there is a float of each output."""
    import torch

    x, w = (
        torch.from_numpy(a).cuda().half().permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
        for a in case.inputs().values()
    )
    torch.backends.cudnn.benchmark = True
    return Entry(
        lambda: torch.nn.functional.conv2d(x, w, padding=1),
        lambda y: y.permute(0, 2, 3, 1).float().cpu().numpy() > 0,
    )


def half_product(case):
    import torch

    x, w = (torch.from_numpy(a).cuda().half() for a in case.inputs().values())
    return Entry(lambda: x @ w.T, lambda y: ends(y.float().cpu().numpy()), 2**-10)


def byte_product(case):
    import torch

    x, w = (torch.from_numpy(a).cuda() for a in case.inputs().values())
    return Entry(lambda: torch._int_mm(x, w.T), lambda y: ends(y.cpu().numpy()))


def expected(case):
    if not isinstance(case, Product):
        return case.expected()
    given = case.inputs()
    return (ends(given["x"]).astype(np.float32) @ given["w"].astype(np.float32).T).astype(np.int32)


def ends(a):
    """The first and the last rows."""
    return a if len(a) <= 2 * ROWS else np.concatenate([a[:ROWS], a[-ROWS:]])
