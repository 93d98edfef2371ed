"""MobileNetV2 with weights and activations of k bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...arrays import checks
from ..graph import Graph
from .parameters import Parameters
from .recipe import Recipe, Tensor

# Of each group of blocks: expansion, outputs, how many, stride of the first
_GROUPS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
_LAST = 1280


def dorefa_mobilenet_v2(
    state: Mapping[str, Any] | None = None, *, bits: int = 4, size: int = 224, classes: int = 1000, seed: int = 0
) -> Graph:
    """Build MobileNetV2 with weights and activations of `bits`, 2 to 7; images uint8 [n 3 size size].

    Activations after a batch norm are clipped to 0 .. 1 (the published ReLU6 scaled to that range) and rounded to
    2**bits levels, weights are DoReFa-Net's. A block's last batch norm, and the sum with its shortcut, are float32, and
    are quantised where the next convolution takes them. The first convolution has int8 weights, the last dense layer
    int8 weights by float32.

    state: parameters by torchvision's names for mobilenet_v2.

    Sandler et al., MobileNetV2, CVPR 2018, arXiv:1801.04381; Zhou et al., DoReFa-Net, 2016, arXiv:1606.06160.

    >>> import quantarray as qa, numpy as np
    >>> qa.nn.models.dorefa_mobilenet_v2(size=32, classes=10)(np.zeros((1, 3, 32, 32), np.uint8)).shape
    (1, 10)
    """
    model = "dorefa_mobilenet_v2"
    checks.integer(model, "size", size, 32)
    if not 2 <= checks.integer(model, "bits", bits, 1) <= 7:
        raise ValueError(f"{model}: bits must be from 2 to 7, got {bits}")
    r = Recipe(model, Parameters(model, state, seed))
    x = r.norm(r.conv(r.input((3, size, size)), "features.0.0", 32, 3, 2, weights="int8"), "features.0.1")
    at = 1
    for expansion, outputs, count, stride in _GROUPS:
        for i in range(count):
            x = _block(r, x, f"features.{at}.conv", expansion, outputs, stride if i == 0 else 1, bits)
            at += 1
    x = r.conv(r.codes(x, bits), f"features.{at}.0", _LAST, 1, weights=bits)
    x = r.codes(r.norm(x, f"features.{at}.1"), bits)
    return r.graph(r.linear(r.global_pool(x), "classifier.1", classes, "bytes", bias=True))


def _block(r: Recipe, x: Tensor, name: str, expansion: int, outputs: int, stride: int, bits: int) -> Tensor:
    channels, y, at = x.shape[0], r.codes(x, bits), 0
    if expansion > 1:
        y = r.conv(y, f"{name}.0.0", channels * expansion, 1, weights=bits)
        y, at = r.codes(r.norm(y, f"{name}.0.1"), bits), 1
    y = r.conv(y, f"{name}.{at}.0", y.shape[0], 3, stride, groups=y.shape[0], weights=bits)
    y = r.codes(r.norm(y, f"{name}.{at}.1"), bits)
    y = r.norm(r.conv(y, f"{name}.{at + 1}", outputs, 1, weights=bits), f"{name}.{at + 2}")
    return r.add(y, x) if stride == 1 and channels == outputs else y
