"""XNOR-Net's AlexNet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...arrays import checks
from ..graph import Graph
from .parameters import Parameters
from .recipe import Recipe


def xnor_alexnet(
    state: Mapping[str, Any] | None = None, *, size: int = 227, classes: int = 1000, seed: int = 0
) -> Graph:
    """Build XNOR-Net's AlexNet; images uint8 [n 3 size size].

    Blocks are batch norm, sign, binary convolution, and a max pool of its sums before the next batch norm. Weights are
    signs times the mean magnitude of each output. The first convolution is int8 with a scale for each output; the last
    dense layer is int8 weights by float32. Inputs are not scaled by their means, as in the paper's own experiments with
    the factor of weights alone.

    Rastegari et al., XNOR-Net, ECCV 2016, arXiv:1603.05279.

    >>> import quantarray as qa, numpy as np
    >>> qa.nn.models.xnor_alexnet(size=67, classes=10)(np.zeros((1, 3, 67, 67), np.uint8)).shape
    (1, 10)
    """
    if checks.integer("xnor_alexnet", "size", size, 1) < 67:
        raise ValueError(f"xnor_alexnet: size must be at least 67, for three pools, got {size}")
    r = Recipe("xnor_alexnet", Parameters("xnor_alexnet", state, seed))
    x = r.conv(r.input((3, size, size)), "conv1", 96, 11, stride=4, padding=0, weights="int8")
    x = r.max_pool(r.relu(r.norm(x, "bn1")), 3, 2)
    x = r.max_pool(r.conv(r.sign(r.norm(x, "bn2", 1e-4)), "conv2", 256, 5), 3, 2)
    x = r.conv(r.sign(r.norm(x, "bn3", 1e-4)), "conv3", 384, 3)
    x = r.conv(r.sign(r.norm(x, "bn4", 1e-4)), "conv4", 384, 3)
    x = r.max_pool(r.conv(r.sign(r.norm(x, "bn5", 1e-4)), "conv5", 256, 3), 3, 2)
    x = r.linear(r.sign(r.norm(x, "bn6", 1e-4)), "fc6", 4096)
    x = r.linear(r.sign(r.norm(x, "bn7", 1e-3)), "fc7", 4096)
    x = r.relu(r.norm(x, "bn8", 1e-3))
    return r.graph(r.linear(x, "fc8", classes, "bytes", bias=True))
