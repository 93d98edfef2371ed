"""Quantisers: `fit` finds a scheme's constants, `encode` its codes. One small file a scheme.

A scheme of your own is a subclass of `Quantizer` with the same two methods.
"""

from .base import Quantizer
from .sign import Sign
from .uniform import Uniform

__all__ = ["Quantizer", "Sign", "Uniform"]
