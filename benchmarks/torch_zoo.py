"""Topologies of torchvision with low-bit weights and activations: loaded by `qa.nn.from_torch`, compared, and timed.

    python -m benchmarks.torch_zoo [--size 224] [--kinds sign int4] [--time] [--save PAGE] [-- NAME ..]

All convolutions and linear layers but the first and the last get weights and inputs of sign or of 4 bits. Weights are
random; steps of activations and running statistics come from images of noise. "equal" compares the codes of every
quantiser with PyTorch's, each from PyTorch's codes before it: one may differ where PyTorch's value is within 1e-5
steps of a boundary.

--time makes a table of times instead: the prepared graph, and the network of torchvision in float32 as it is,
in turns in one process. NumPy's OpenBLAS has one thread, as its others spin where our threads would run; PyTorch has
its own. A ratio is the median of those of pairs of calls, with the smallest and the largest.

The kind int8 is PyTorch's own static quantisation of `torchvision.models.quantization`, with the settings of "x86"; all
stored tensors are compared, and a code may differ where PyTorch's value is within 5e-5 steps of a boundary.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy loads it

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import quantarray as qa

NAMES = (
    "alexnet vgg16 resnet18 resnet50 wide_resnet50_2 resnext50_32x4d densenet161 googlenet inception_v3 squeezenet1_0 "
    "shufflenet_v2_x1_0 mobilenet_v2 mobilenet_v3_small mobilenet_v3_large mnasnet1_0 efficientnet_b0 efficientnet_b4 "
    "regnet_y_400mf"
).split()
BATCHES = (1, 16)
SECONDS, LEAST = 10.0, 5  # of a batch's calls in turns, and the fewest pairs of calls


class Quantiser(nn.Module):
    """A quantiser: sign, or 4 bits with the step of the first images."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.register_buffer("step", torch.tensor(0.0))

    def forward(self, x: Any) -> Any:
        if self.kind == "sign":
            return torch.where(x >= 0, 1.0, -1.0)
        if self.training:
            self.step.copy_(x.abs().flatten()[::17].quantile(0.99).clamp(min=1e-3) / 7)
        return (x / self.step).round().clamp(-8, 7) * self.step


class LowBit(nn.Module):
    """A convolution or a linear layer on low-bit inputs, with low-bit weights."""

    def __init__(self, layer: Any, kind: str) -> None:
        super().__init__()
        self.layer, self.kind, self.act = layer, kind, Quantiser(kind)

    def weight(self) -> Any:
        w = self.layer.weight
        if self.kind == "sign":
            return torch.where(w >= 0, 1.0, -1.0)
        step = w.abs().amax() / 7
        return (w / step).round() * step

    def forward(self, x: Any) -> Any:
        x, w, one = self.act(x), self.weight(), self.layer
        if isinstance(one, nn.Linear):
            return F.linear(x, w, one.bias)
        return F.conv2d(x, w, one.bias, one.stride, one.padding, one.dilation, one.groups)


def model(name: str, kind: str, size: int) -> Any:
    """Return a network of random low-bit weights that has seen images."""
    if kind == "int8":
        return _static(getattr(_models().quantization, name)(weights=None, quantize=False), size)
    net = topology(name)
    layers = [path for path, part in net.named_modules() if isinstance(part, (nn.Conv2d, nn.Linear))]
    for path in layers[1:-1]:
        parent, _, attribute = path.rpartition(".")
        owner = net.get_submodule(parent)
        setattr(owner, attribute, LowBit(getattr(owner, attribute), kind))
    net.eval()
    for part in net.modules():
        if isinstance(part, (nn.BatchNorm2d, Quantiser)):
            part.train()
            part.momentum = 0.5
    with torch.no_grad():
        for _ in range(2):
            net(torch.randn(2, 3, size, size))
    return net.eval()


def topology(name: str) -> Any:
    """Return a network of torchvision with random weights."""
    models = _models()
    torch.manual_seed(0)
    more = {"aux_logits": False, "init_weights": False} if name in ("googlenet", "inception_v3") else {}
    return getattr(models, name)(weights=None, **more)


def _models() -> Any:
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "with_torch"))
    from torch_models import torchvision

    torchvision()
    import torchvision.models as models

    torch.manual_seed(0)
    return models


def _static(net: Any, size: int) -> Any:
    """Quantise a network of torchvision as PyTorch's guide does."""
    from torch.ao import quantization

    torch.backends.quantized.engine = "x86"
    net.eval()
    for part in net.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.running_var, 0.5, 2)
            nn.init.normal_(part.running_mean, 0, 0.2)
    net.fuse_model()
    net.qconfig = quantization.get_default_qconfig("x86")
    prepared = quantization.prepare(net)
    with torch.no_grad():
        prepared(torch.randn(4, 3, size, size))
    return quantization.convert(prepared)


def row(name: str, kind: str, size: int) -> list[str]:
    """Return a line of the table: name, weights, result, layers on floats, seconds to load."""
    net = model(name, kind, size)
    x = torch.randn(2, 3, size, size)
    began = time.perf_counter()
    try:
        graph = qa.nn.from_torch(net, x[:1])
    except ValueError as error:
        return [name, kind, str(error).splitlines()[1].strip(), "", ""]
    seconds = time.perf_counter() - began
    summary = graph.summary()
    floats = [r.source.split(" ")[0] for r in summary.numpy if r.op in ("Conv", "MatMul", "Gemm")]
    return [name, kind, (stored if kind == "int8" else compared)(net, x, graph), ", ".join(floats), f"{seconds:.1f}"]


def timed(name: str, kind: str, size: int) -> list[str]:
    """Return a line of the table of times: name, weights, and ours, PyTorch's and the ratio for each batch."""
    floats, cells = topology(name).eval(), [name, kind]
    fast = qa.nn.from_torch(model(name, kind, size), torch.randn(1, 3, size, size)).prepared()
    for batch in BATCHES:
        images = torch.randn(batch, 3, size, size)
        a = images.numpy()
        ours, theirs = in_turns(lambda a=a: fast(a), lambda images=images: floats(images))
        ratios = theirs / ours
        spread = f"{np.median(ratios):.2f} ({ratios.min():.2f} to {ratios.max():.2f})"
        cells += [f"{1e3 * np.median(ours):.1f}", f"{1e3 * np.median(theirs):.1f}", spread]
    return cells


def in_turns(*calls: Any) -> Any:
    """Return the seconds of each call, [calls, times], after one of each."""
    rows: list[list[float]] = []
    with torch.no_grad():
        for call in calls:
            call()
        began = time.perf_counter()
        while len(rows) < LEAST or time.perf_counter() - began < SECONDS:
            rows.append([_seconds(call) for call in calls])
    return np.array(rows).T


def _seconds(call: Any) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def compared(net: Any, x: Any, graph: Any) -> str:
    """Return "equal" and the number of codes, or the first quantiser whose codes differ from PyTorch's."""
    from torch_compared import compare

    try:
        differ = compare(net, x, graph, (Quantiser,))
    except AssertionError as error:
        return f"differs: {str(error).splitlines()[0]}"
    total = sum(isinstance(part, Quantiser) for part in net.modules())
    if len(differ) < total:
        return f"{len(differ)} of {total} quantisers are compared"
    return f"equal but for {sum(differ.values())} at a boundary" if any(differ.values()) else "equal"


def stored(net: Any, x: Any, graph: Any) -> str:
    """Return how many stored tensors have PyTorch's codes."""
    from torch_compared import compare_stored

    try:
        differ = compare_stored(net, x, graph)
    except AssertionError as error:
        return f"differs: {str(error).splitlines()[0]}"
    but = f" but for {sum(differ.values())} codes at a boundary" if any(differ.values()) else ""
    return f"{len(differ)} stored tensors equal{but}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_zoo", description=__doc__)
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--kinds", nargs="+", default=["sign", "int4"], choices=["sign", "int4", "int8"])
    parser.add_argument("--time", action="store_true", help="time batches of 1 and 16 beside PyTorch's float32")
    parser.add_argument("--save", type=Path, help="append the table to a page")
    options = parser.parse_args()
    head = ["network", "weights, activations", "codes", "layers on floats", "load, s"]
    if options.time:
        each = [(f"batch {n}: ours, ms", "torch float32, ms", "torch / ours") for n in BATCHES]
        head = [*head[:2], *(cell for cells in each for cell in cells)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name in options.names or NAMES:
        for kind in options.kinds:
            cells = (timed if options.time else row)(name, kind, options.size)
            lines.append("| " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
    if options.save:
        with options.save.open("a") as page:
            page.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
