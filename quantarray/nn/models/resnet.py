"""Residual networks: Bi-Real Net, and DoReFa-Net's levels in ResNet-18."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...arrays import checks
from ..graph import Graph
from .parameters import Parameters
from .recipe import Recipe, Tensor

_STAGES = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}
_WIDTH, _LEAST = 64, 32


def bireal_resnet18(
    state: Mapping[str, Any] | None = None,
    *,
    size: int = 224,
    classes: int = 1000,
    width: int = _WIDTH,
    int8: bool = True,
    seed: int = 0,
) -> Graph:
    """Build Bi-Real Net of 18 layers; images uint8 [n 3 size size].

    Each 3x3 convolution is binary: y = bn(conv(sign(x), sign(w) * mean |w|)) + x, with a shortcut of its own, kept as
    float32. The sum is computed in float32 in this order: sums of signs as integers, times the weights' scale, batch
    norm, plus the shortcut. Where the size halves, the shortcut is a 2x2 mean, a 1x1 convolution and a batch norm. The
    first convolution, 7x7 on bytes, has int8 weights with a scale for each output.

    int8: shortcut convolutions and the last dense layer have int8 weights with a scale for each output; False leaves
    them float32, as published. width: channels of the first stage.
    state: parameters by torchvision's names for ResNet (`parameters(bireal_resnet18)` lists them).

    Liu et al., Bi-Real Net, ECCV 2018, arXiv:1808.00278.

    >>> import quantarray as qa, numpy as np
    >>> net = qa.nn.models.bireal_resnet18(size=32, width=16, classes=10)
    >>> net(np.zeros((1, 3, 32, 32), np.uint8)).shape
    (1, 10)
    """
    return _bireal("bireal_resnet18", 18, state, size, classes, width, int8, seed)


def bireal_resnet34(
    state: Mapping[str, Any] | None = None,
    *,
    size: int = 224,
    classes: int = 1000,
    width: int = _WIDTH,
    int8: bool = True,
    seed: int = 0,
) -> Graph:
    """Build Bi-Real Net of 34 layers; everything as in `bireal_resnet18`.

    >>> import quantarray as qa, numpy as np
    >>> net = qa.nn.models.bireal_resnet34(size=32, width=16, classes=10)
    >>> net(np.zeros((1, 3, 32, 32), np.uint8)).shape
    (1, 10)
    """
    return _bireal("bireal_resnet34", 34, state, size, classes, width, int8, seed)


def _bireal(
    model: str, layers: int, state: Mapping[str, Any] | None, size: int, classes: int, width: int, int8: bool, seed: int
) -> Graph:
    checks.integer(model, "size", size, _LEAST)
    r = Recipe(model, Parameters(model, state, seed))
    rest = "bytes" if int8 else "float"
    x = _stem(r, size, width)
    for stage, blocks in enumerate(_STAGES[layers]):
        for i in range(2 * blocks):
            block, half = f"layer{stage + 1}.{i // 2}", i % 2 + 1
            outputs, stride = width << stage, 2 if stage and i == 0 else 1
            y = r.conv(r.sign(x), f"{block}.conv{half}", outputs, 3, stride)
            y = r.norm(y, f"{block}.bn{half}")
            x = r.add(y, _shortcut(r, x, f"{block}.downsample", outputs, rest) if stride == 2 else x)
    return r.graph(r.linear(r.global_pool(x), "fc", classes, rest, bias=True))


def _stem(r: Recipe, size: int, width: int) -> Tensor:
    x = r.conv(r.input((3, size, size)), "conv1", width, 7, 2, weights="int8")
    return r.max_pool(r.norm(x, "bn1"), 3, 2, 1)


def _shortcut(r: Recipe, x: Tensor, name: str, outputs: int, weights: str) -> Tensor:
    return r.norm(r.conv(r.avg_pool(x, 2, 2), f"{name}.0", outputs, 1, weights=weights), f"{name}.1")


def dorefa_resnet18(
    state: Mapping[str, Any] | None = None,
    *,
    bits: int = 2,
    size: int = 224,
    classes: int = 1000,
    width: int = _WIDTH,
    seed: int = 0,
) -> Graph:
    """Build ResNet-18 with weights and activations of `bits`, 1 to 7; images uint8 [n 3 size size].

    Activations are clipped to 0 .. 1 and rounded to 2**bits levels, weights as DoReFa-Net has them (tanh, 2**bits odd
    levels); of 1 bit both are signs. Shortcuts are sums in float32: batch norm of the second convolution plus the codes
    that the block takes, or plus the batch norm of a 1x1 convolution of them. The first convolution has int8 weights,
    the last dense layer int8 weights by float32.

    state: parameters by torchvision's names for resnet18.

    Zhou et al., DoReFa-Net, 2016, arXiv:1606.06160.

    >>> import quantarray as qa, numpy as np
    >>> net = qa.nn.models.dorefa_resnet18(size=32, width=16, classes=10, bits=4)
    >>> net(np.zeros((1, 3, 32, 32), np.uint8)).shape
    (1, 10)
    """
    model = "dorefa_resnet18"
    checks.integer(model, "size", size, _LEAST)
    if checks.integer(model, "bits", bits, 1) > 7:
        raise ValueError(f"{model}: bits must be from 1 to 7, got {bits}")
    r = Recipe(model, Parameters(model, state, seed))
    x = r.codes(_stem(r, size, width), bits)
    for stage, blocks in enumerate(_STAGES[18]):
        for i in range(blocks):
            name, outputs, stride = f"layer{stage + 1}.{i}", width << stage, 2 if stage and i == 0 else 1
            y = r.codes(r.norm(r.conv(x, f"{name}.conv1", outputs, 3, stride, weights=bits), f"{name}.bn1"), bits)
            y = r.norm(r.conv(y, f"{name}.conv2", outputs, 3, weights=bits), f"{name}.bn2")
            if stride == 2:
                x = r.conv(x, f"{name}.downsample.0", outputs, 1, 2, weights=bits)
                x = r.norm(x, f"{name}.downsample.1")
            x = r.codes(r.add(y, x), bits)
    return r.graph(r.linear(r.global_pool(x), "fc", classes, "bytes", bias=True))
