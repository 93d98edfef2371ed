"""Layers, the packed network, and graphs from ONNX files."""

from .graph import Graph, Node, Value
from .layers import Conv2d, Dense, MaxPool2d
from .network import Network, Record, Sequential, load_network
from .onnx.loading import load

__all__ = [
    "Conv2d",
    "Dense",
    "Graph",
    "MaxPool2d",
    "Network",
    "Node",
    "Record",
    "Sequential",
    "Value",
    "load",
    "load_network",
]


def __dir__() -> list[str]:
    return list(__all__)
