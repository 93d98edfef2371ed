"""Layers and the packed network."""

from .file import load
from .layers import Conv2d, Dense
from .network import Network, Record, Sequential, load_network
from .pooling import AvgPool2d, GlobalAvgPool, Map, MaxPool2d, Threshold

__all__ = [
    "AvgPool2d",
    "Conv2d",
    "Dense",
    "GlobalAvgPool",
    "Map",
    "MaxPool2d",
    "Network",
    "Record",
    "Sequential",
    "Threshold",
    "load",
    "load_network",
]


def __dir__() -> list[str]:
    return list(__all__)
