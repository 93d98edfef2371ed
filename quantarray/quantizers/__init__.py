"""Quantisers: `fit` finds a scheme's constants, `encode` its codes. One small file a scheme.

A scheme of your own is a subclass of `Quantizer` with the same two methods.
"""

from .abc_net import ABC, ABCActivations
from .base import Quantizer
from .dorefa import DoReFa
from .greedy import Greedy
from .grouped import Grouped
from .lloyd_max import LloydMax
from .lq import LQ, moving_average
from .normal_float import NormalFloat
from .pact import PACT
from .power_of_two import PowerOfTwo
from .sign import Sign
from .ternary import Ternary
from .uniform import Uniform
from .xnor import XNOR

__all__ = [
    "ABC",
    "LQ",
    "PACT",
    "XNOR",
    "ABCActivations",
    "DoReFa",
    "Greedy",
    "Grouped",
    "LloydMax",
    "NormalFloat",
    "PowerOfTwo",
    "Quantizer",
    "Sign",
    "Ternary",
    "Uniform",
    "moving_average",
]


def __dir__() -> list[str]:
    return list(__all__)
