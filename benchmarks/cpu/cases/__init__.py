"""What is measured: inputs from a seed, the output that is right, and how much work the output needs at least."""

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
