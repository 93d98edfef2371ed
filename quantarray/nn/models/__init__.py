"""Published low-bit networks, built in a line with random parameters or those of a state dict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core.dtypes import Array
from ..graph import Graph
from .alexnet import xnor_alexnet
from .finn import cnv, lfc
from .mobilenet import dorefa_mobilenet_v2
from .parameters import recorded
from .quicknet import quicknet
from .resnet import bireal_resnet18, bireal_resnet34, dorefa_resnet18
from .yolo import tinier_yolo

__all__ = [
    "bireal_resnet18",
    "bireal_resnet34",
    "cnv",
    "dorefa_mobilenet_v2",
    "dorefa_resnet18",
    "lfc",
    "parameters",
    "quicknet",
    "tinier_yolo",
    "xnor_alexnet",
]


def parameters(model: Callable[..., Graph], **arguments: Any) -> dict[str, Array]:
    """Return the parameters that a model draws, float32 arrays by name; `arguments` are the model's, such as `seed`.

    >>> import quantarray as qa
    >>> state = qa.nn.models.parameters(qa.nn.models.lfc, width=64)
    >>> {name: a.shape for name, a in state.items()}["fc2.weight"]
    (64, 64)
    >>> qa.nn.models.lfc(state, width=64).name
    'lfc'
    """
    if getattr(model, "__name__", "") not in __all__ or not callable(model):
        raise TypeError(f"parameters: model must be a function of qa.nn.models, such as lfc, got {model!r}")
    if "state" in arguments:
        raise TypeError("parameters: draws random parameters, and takes no state")
    return recorded(lambda: model(**arguments))


def __dir__() -> list[str]:
    return list(__all__)
