"""PyTorch beside packed arrays: bridges, training of low-bit networks, and training on compressed activations."""

from ..core.forks import no_fork

with no_fork:
    try:
        import torch as _torch  # noqa: F401
    except ModuleNotFoundError as error:
        raise ImportError(
            "quantarray.torch needs the package torch; install it: pip install 'quantarray[torch]'"
        ) from error

from .bridges import PackedTensor, dequantize, quantize, to_torch
from .compressed import compressed_activations
from .compression import Compression
from .conversion import Converted, convert
from .layers import BinaryConv2d, QuantConv1d, QuantConv2d, QuantConv3d, QuantLinear
from .learned import LQ, LSQ, PACT, ABCActivations
from .optimizer_state import CompressedState, compress_state
from .schemes import ABC, DoReFa, Scheme, Sign, Ternary
from .transposed import QuantConvTranspose1d, QuantConvTranspose2d, QuantConvTranspose3d

__all__ = [
    "ABC",
    "LQ",
    "LSQ",
    "PACT",
    "ABCActivations",
    "BinaryConv2d",
    "CompressedState",
    "Compression",
    "Converted",
    "DoReFa",
    "PackedTensor",
    "QuantConv1d",
    "QuantConv2d",
    "QuantConv3d",
    "QuantConvTranspose1d",
    "QuantConvTranspose2d",
    "QuantConvTranspose3d",
    "QuantLinear",
    "Scheme",
    "Sign",
    "Ternary",
    "compress_state",
    "compressed_activations",
    "convert",
    "dequantize",
    "quantize",
    "to_torch",
]


def __dir__() -> list[str]:
    return list(__all__)
