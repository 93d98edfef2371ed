"""Whole networks, from files of plain integers."""

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path

import numpy as np

from .base import Case

_ROOT = Path(__file__).resolve().parents[3]
_SHARED = _ROOT / "shared" if (_ROOT / "shared").exists() else _ROOT.parent / "shared"
NETWORKS = _SHARED / "networks"


@dataclass(frozen=True, kw_only=True)
class Network(Case):
    """A trained network on the inputs in its file, or on `batch` of them; what it must give is in the file too."""

    file: str
    batch: int | None = None

    @property
    def path(self):
        return NETWORKS / f"{self.file}.npz"

    @lru_cache(1)  # noqa: B019
    def plain(self):
        from quantarray.io.plain import read_plain

        return read_plain(self.path)

    def inputs(self):
        return {"x": self._of_batch(self.plain().input)}

    def expected(self):
        return self._of_batch(self.plain().expected)

    def _of_batch(self, a):
        """Return the first `batch` rows of `a`, beginning again at the first row if the file has fewer."""
        return a if self.batch is None else a[np.arange(self.batch) % len(a)]

    @lru_cache(1)  # noqa: B019
    def _work(self):
        """(products, bytes) of all layers, from what each of them makes of one input."""
        from quantarray.nn import load_network

        network = load_network(self.path)
        x, count = network.encode_input(self.plain().input[:1]), len(self.inputs()["x"])
        products, bits, nbytes, weights = 0, getattr(x, "bits", 8), x.nbytes, 0
        for layer, record in zip(network.layers, network.layers.trace(x), strict=True):
            weight = getattr(layer, "weight", None)
            if weight is not None:
                products += bits * weight.bits * prod(weight.shape[1:]) * prod(record.shape)
            bits, nbytes, weights = record.bits, nbytes + record.nbytes, weights + record.weight_nbytes
        return count * products, count * nbytes + weights

    @property
    def products(self):
        return self._work()[0]

    @property
    def nbytes(self):
        return self._work()[1]
