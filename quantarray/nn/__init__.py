"""Layers, the packed network, and graphs from ONNX files."""

from .graph import Graph, Node, Value
from .layers import Conv2d, Dense
from .loading import load
from .network import Network, Record, Sequential, load_network
from .pooling import AvgPool2d, GlobalAvgPool, Map, MaxPool2d, Threshold

__all__ = [
    "AvgPool2d",
    "Conv2d",
    "Dense",
    "GlobalAvgPool",
    "Graph",
    "Map",
    "MaxPool2d",
    "Network",
    "Node",
    "Record",
    "Sequential",
    "Threshold",
    "Value",
    "load",
    "load_network",
]


def __dir__() -> list[str]:
    return list(__all__)
