"""Layers and the packed network."""

from .layers import Conv2d, Dense, MaxPool2d
from .network import Network, Record, Sequential, load_network

__all__ = ["Conv2d", "Dense", "MaxPool2d", "Network", "Record", "Sequential", "load_network"]


def __dir__() -> list[str]:
    return list(__all__)
