"""Cases: inputs from a seed, the right output, and the least work that the output needs."""

from .base import Case, draw, levels
from .convolutions import Bases, Conv, correlate
from .networks import Network
from .rows import Pack, Product, Search, Unpack

__all__ = [
    "Bases",
    "Case",
    "Conv",
    "Network",
    "Pack",
    "Product",
    "Search",
    "Unpack",
    "correlate",
    "draw",
    "levels",
]
