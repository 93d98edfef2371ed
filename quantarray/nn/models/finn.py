"""Fully connected and convolutional networks of FINN: 1 or 2 bits in every layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...arrays import checks
from ..graph import Graph
from .parameters import Parameters
from .recipe import Recipe

_CNV = ((64, False), (64, True), (128, False), (128, True), (256, False), (256, False))  # outputs, pooled
_CNV_DENSE = 512


def lfc(
    state: Mapping[str, Any] | None = None,
    *,
    bits: tuple[int, int] = (1, 1),
    width: int = 1024,
    inputs: int = 784,
    classes: int = 10,
    seed: int = 0,
) -> Graph:
    """Build LFC: `inputs` pixels, three dense layers of `width` units and one of `classes`.

    bits: of weights and of activations, 1 (signs) or 2 to 4 (activations of 2**bits - 1 levels about 0). Inputs are
    bytes, of which the first layer takes the sign of x / 127.5 - 1, or as many levels. A batch norm follows each layer;
    in hidden layers it and the quantiser become integer thresholds, the last one stays float32.

    state: parameters by name (`parameters(lfc)` lists them); random ones from `seed` without it.

    Umuroglu et al., FINN, FPGA 2017, arXiv:1612.07119.

    >>> import quantarray as qa, numpy as np
    >>> net = qa.nn.models.lfc()
    >>> net(np.zeros((2, 784), np.uint8)).shape
    (2, 10)
    """
    weights, activations = _bits("lfc", bits)
    r = Recipe("lfc", Parameters("lfc", state, seed))
    x = r.narrow(r.centred(r.input((inputs,))), activations)
    for i in range(3):
        x = r.narrow(r.norm(r.linear(x, f"fc{i + 1}", width, weights), f"bn{i + 1}"), activations)
    return r.graph(r.norm(r.linear(x, "fc4", classes, weights), "bn4"))


def cnv(
    state: Mapping[str, Any] | None = None,
    *,
    bits: tuple[int, int] = (1, 1),
    size: int = 32,
    classes: int = 10,
    seed: int = 0,
) -> Graph:
    """Build CNV: six 3x3 convolutions without padding, two max pools, three dense layers; images uint8 [n 3 size size].

    bits: of weights and of activations, as in `lfc`. The first convolution takes the bytes as they are. Batch norms and
    quantisers become integer thresholds; pools take the largest code. The last layer has no batch norm.

    Umuroglu et al., FINN, FPGA 2017, arXiv:1612.07119.

    >>> import quantarray as qa, numpy as np
    >>> qa.nn.models.cnv()(np.zeros((1, 3, 32, 32), np.uint8)).shape
    (1, 10)
    """
    weights, activations = _bits("cnv", bits)
    if checks.integer("cnv", "size", size, 1) < 30:
        raise ValueError(f"cnv: size must be at least 30, which six 3x3 convolutions and two pools need, got {size}")
    r = Recipe("cnv", Parameters("cnv", state, seed))
    x = r.input((3, size, size))
    for i, (outputs, pooled) in enumerate(_CNV):
        x = r.conv(x, f"conv{i + 1}", outputs, 3, padding=0, weights=weights)
        x = r.narrow(r.norm(x, f"bn{i + 1}"), activations)
        x = r.max_pool(x, 2, 2) if pooled else x
    for i in range(2):
        x = r.narrow(r.norm(r.linear(x, f"fc{i + 1}", _CNV_DENSE, weights), f"bn{i + 7}"), activations)
    return r.graph(r.linear(x, "fc3", classes, weights))


def _bits(model: str, bits: Any) -> tuple[int, int]:
    pair = tuple(bits) if isinstance(bits, (tuple, list)) else ()
    if len(pair) != 2 or not all(isinstance(n, int) and 1 <= n <= 4 for n in pair):
        raise ValueError(f"{model}: bits must be two numbers from 1 to 4, of weights and of activations, got {bits!r}")
    return pair[0], pair[1]
