"""Calls so small that they take what Python takes: beside PyTorch's of the same arrays in float16."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import quantarray as qa

from ..cpu.cases import Case, draw


@dataclass(frozen=True, kw_only=True)
class Call(Case):
    """A call of one array; `ours` of a packed one or, with `packs`, of a dense one, `torchs` of a tensor."""

    shape: tuple[int, ...]
    ours: Callable[[Any], Any]
    numpys: Callable[[np.ndarray], np.ndarray]
    torchs: Callable[[Any], Any]
    packs: bool = False
    products: int = 0

    def inputs(self):
        x = draw(self.random(), 1, self.shape)
        return {"x": x.astype(np.float32) if self.packs else x}

    def expected(self):
        return self.numpys(self.inputs()["x"])

    @property
    def nbytes(self):
        return max(1, int(np.prod(self.shape)) // 8)


def _pooled(x):
    n, h, w, c = x.shape
    return x[:, : h // 2 * 2, : w // 2 * 2].reshape(n, h // 2, 2, w // 2, 2, c).max((2, 4))


def _torchs_pool(x):
    import torch

    return torch.nn.functional.max_pool2d(x.permute(0, 3, 1, 2), 2).permute(0, 2, 3, 1)


CALLS = [
    Call(
        name="sum of rows, 8x512", shape=(8, 512), ours=lambda q: qa.sum(q, axis=1),
        numpys=lambda x: x.sum(1, dtype=np.int64), torchs=lambda x: x.sum(1),
    ),
    Call(
        name="max_pool2d, 14x14x64", shape=(1, 14, 14, 64), ours=lambda q: qa.max_pool2d(q, 2), numpys=_pooled,
        torchs=_torchs_pool,
    ),
    Call(name="q + 1, 8x512", shape=(8, 512), ours=lambda q: q + 1, numpys=lambda x: x + 1, torchs=lambda x: x + 1),
    Call(
        name="quantize, 64x1024", shape=(64, 1024), ours=lambda x: qa.quantize(x, qa.Sign()),
        numpys=np.sign, torchs=lambda x: x.sign(), packs=True,
    ),
]  # fmt: skip
