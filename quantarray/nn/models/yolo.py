"""Tinier-YOLO: the detector of QNN-MO-PYNQ, whose hidden layers have weights of 1 bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...arrays import checks
from ..graph import Graph
from .parameters import Parameters
from .recipe import Recipe

# Of each hidden convolution: outputs, and stride of the 2x2 max pool after it, 0 without one
_HIDDEN = ((64, 2), (64, 2), (128, 2), (256, 2), (512, 1), (512, 0), (512, 0))
_FIRST, _STRIDE = 16, 32


def tinier_yolo(
    state: Mapping[str, Any] | None = None,
    *,
    bits: tuple[int, int] = (1, 3),
    size: int = 416,
    classes: int = 20,
    anchors: int = 5,
    int8: bool = True,
    seed: int = 0,
) -> Graph:
    """Build Tinier-YOLO; images uint8 [n 3 size size], out float32 [n anchors * (5 + classes) size/32 size/32].

    A 3x3 convolution of stride 2, seven of low bits with five 2x2 max pools, the last of which has stride 1 and pads
    after the image, and a 1x1 convolution with a bias. Activations after a batch norm are clipped to 0 .. 1 (the
    published 0 .. 4, scaled to that range) and rounded to 2**bits levels; they and the batch norms become thresholds.
    `qa.nn.detection.boxes` decodes the output.

    bits: of weights, from 1 to 7, and of activations, from 2 to 7. 1-bit weights are signs times the mean magnitude of
    each output. int8: the first and the last convolution have int8 weights with a scale for each output; False leaves
    them float32, as published. size: a multiple of 32.

    Preusser et al., Inference of quantized neural networks on heterogeneous all-programmable devices, DATE 2018,
    arXiv:1806.08085, for the design; the network is that of github.com/Xilinx/QNN-MO-PYNQ.

    >>> import quantarray as qa, numpy as np
    >>> qa.nn.models.tinier_yolo(size=64)(np.zeros((1, 3, 64, 64), np.uint8)).shape
    (1, 125, 2, 2)
    """
    model = "tinier_yolo"
    if checks.integer(model, "size", size, _STRIDE) % _STRIDE:
        raise ValueError(f"{model}: size must be a multiple of {_STRIDE}, got {size}")
    pair = tuple(bits) if isinstance(bits, (tuple, list)) else ()
    if len(pair) != 2 or not all(isinstance(n, int) and least <= n <= 7 for n, least in zip(pair, (1, 2), strict=True)):
        raise ValueError(
            f"{model}: bits must be two numbers, of weights from 1 to 7 and of activations from 2 to 7, got {bits!r}"
        )
    outputs = checks.integer(model, "anchors", anchors, 1) * (5 + checks.integer(model, "classes", classes, 1))
    weights, activations = pair
    rest = "int8" if int8 else "float"
    r = Recipe(model, Parameters(model, state, seed))
    x = r.conv(r.input((3, size, size)), "conv0", _FIRST, 3, 2, weights=rest)
    x = r.codes(r.norm(x, "bn0"), activations)
    for i, (channels, stride) in enumerate(_HIDDEN, 1):
        x = r.codes(r.norm(r.conv(x, f"conv{i}", channels, 3, weights=weights), f"bn{i}"), activations)
        if stride:
            x = r.max_pool(x, 2, stride, (0, 1) if stride == 1 else 0)
    return r.graph(r.conv(x, "conv8", outputs, 1, weights=rest, bias=True), "grid")
