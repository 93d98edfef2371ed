"""Whole networks, from files of plain integers."""

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path

from .base import Case

NETWORKS = Path(__file__).resolve().parents[4] / "shared" / "networks"


@dataclass(frozen=True, kw_only=True)
class Network(Case):
    """A trained network on the inputs in its file; what it must give is in the file too."""

    file: str

    @property
    def path(self):
        return NETWORKS / f"{self.file}.npz"

    @lru_cache(1)  # noqa: B019
    def plain(self):
        from quantarray.io.plain import read_plain

        return read_plain(self.path)

    def inputs(self):
        return {"x": self.plain().input}

    def expected(self):
        return self.plain().expected

    @lru_cache(1)  # noqa: B019
    def _work(self):
        """(products, bytes) of all layers, from what each of them made."""
        from quantarray.nn import load_network

        network = load_network(self.path)
        x = network.encode_input(self.inputs()["x"])
        products, bits, nbytes = 0, getattr(x, "bits", 8), x.nbytes
        for layer, record in zip(network.layers, network.layers.trace(x), strict=True):
            weight = getattr(layer, "weight", None)
            if weight is not None:
                products += bits * weight.bits * prod(weight.shape[1:]) * prod(record.shape)
            bits, nbytes = record.bits, nbytes + record.nbytes + record.weight_nbytes
        return products, nbytes

    @property
    def products(self):
        return self._work()[0]

    @property
    def nbytes(self):
        return self._work()[1]
