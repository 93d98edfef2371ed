"""QuickNet, the fast binary network of Larq."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...arrays import checks
from ..graph import Graph
from .parameters import Parameters
from .recipe import Recipe, Tensor

_BLOCKS, _CHANNELS = (2, 3, 4, 4), 64


def quicknet(state: Mapping[str, Any] | None = None, *, size: int = 224, classes: int = 1000, seed: int = 0) -> Graph:
    """Build QuickNet, the first published form (15 layers); images uint8 [n 3 size size].

    A block is y = bn(relu(conv(sign(x), sign(w)))) + x with a 3x3 binary convolution, whose padding is 1; sums are
    float32. Where the size halves, y goes with the batch norm m of a 2x2 max pool of x, as concat(m, y + m). The first
    3x3 convolution has int8 weights on bytes, the depthwise one after it and the last dense layer int8 weights by
    float32. Padding is symmetric, where Larq's "same" pads one more at the right and lower edge.

    Bannink et al., Larq Compute Engine, MLSys 2021, arXiv:2011.09398; larq_zoo 1.0.

    >>> import quantarray as qa, numpy as np
    >>> qa.nn.models.quicknet(size=32, classes=10)(np.zeros((1, 3, 32, 32), np.uint8)).shape
    (1, 10)
    """
    if -(-checks.integer("quicknet", "size", size, 29) // 4) % 8:  # pools round down, convolutions up
        raise ValueError(f"quicknet: size must be a multiple of 32, or up to 3 less, for five halvings, got {size}")
    r = Recipe("quicknet", Parameters("quicknet", state, seed))
    x = r.conv(r.input((3, size, size)), "stem.conv", _CHANNELS // 8, 3, 2, weights="int8")
    x = r.conv(x, "stem.depthwise", _CHANNELS, 3, 2, groups=_CHANNELS // 8, weights="bytes")
    x = r.norm(r.relu(x), "stem.bn")
    at = 0
    for stage, blocks in enumerate(_BLOCKS):
        for i in range(blocks):
            x = _block(r, x, f"block{at}", 2 if stage and i == 0 else 1)
            at += 1
    return r.graph(r.linear(r.global_pool(r.relu(x)), "fc", classes, "bytes", bias=True))


def _block(r: Recipe, x: Tensor, name: str, stride: int) -> Tensor:
    shortcut = x if stride == 1 else r.norm(r.max_pool(x, 2, 2), f"{name}.shortcut")
    y = r.conv(r.pad(r.sign(x), 1, 1.0), f"{name}.conv", x.shape[0], 3, stride, 0, weights="sign")
    y = r.add(r.norm(r.relu(y), f"{name}.bn"), shortcut)
    return y if stride == 1 else r.concat(shortcut, y)
