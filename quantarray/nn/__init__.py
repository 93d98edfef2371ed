"""Layers, the packed network, and graphs from ONNX files and PyTorch modules."""

from . import detection, models
from . import faces as faces  # attaches methods to the classes below
from .convolutions import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from .described import from_state
from .graph import Graph, Node, Value
from .joining import Add, ChannelShuffle, Concat, Split
from .layers import Dense
from .loading import load
from .mapping import Map, Threshold
from .network import Network, load_network
from .pooling import AvgPool1d, AvgPool2d, AvgPool3d, GlobalAvgPool, MaxPool1d, MaxPool2d, MaxPool3d
from .predicting import Predictions
from .sequential import Record, Sequential
from .torch_modules import from_torch

__all__ = [
    "Add",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "ChannelShuffle",
    "Concat",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Dense",
    "GlobalAvgPool",
    "Graph",
    "Map",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "Network",
    "Node",
    "Predictions",
    "Record",
    "Sequential",
    "Split",
    "Threshold",
    "Value",
    "detection",
    "from_state",
    "from_torch",
    "load",
    "load_network",
    "models",
]


def __dir__() -> list[str]:
    return list(__all__)
