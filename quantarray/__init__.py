"""quantarray: the array library for low-bit tensors, what NumPy is to floats, for 1 to 8 bits.

import numpy as np
import quantarray as qa

x = qa.quantize(np.random.randn(1, 56, 56, 64), qa.Sign())
w = qa.quantize(np.random.randn(64, 3, 3, 64), qa.Sign(scale=True), scale_axis=0)
y = qa.conv2d(x, w, padding=1)
"""

from typing import TYPE_CHECKING

from . import linalg, quantizers, testing
from .affine import Affine
from .array import QuantArray
from .batchnorm import fold_batchnorm
from .cuda.array import CuQuantArray
from .device import asnumpy, device
from .dtypes import (
    Constants,
    DType,
    basis,
    bipolar,
    int2,
    int3,
    int4,
    int5,
    int6,
    int7,
    int8,
    integers,
    table,
    ternary,
    uint1,
    uint2,
    uint3,
    uint4,
    uint5,
    uint6,
    uint7,
    uint8,
    uniform,
)
from .errors import DeviceError, FormatError
from .io.container import load, save
from .ops.algebra import add, conj, divide, multiply, negative, positive, real, subtract
from .ops.allocation import allocate_bits
from .ops.along import take_along_axis
from .ops.bits import from_bitarray, from_packbits, pack_bits, to_packbits, unpack_bits
from .ops.choice import choose
from .ops.comparison import array_equal, equal, greater, greater_equal, less, less_equal, not_equal, where
from .ops.contractions import dot, hamming, inner, outer, tensordot, vecdot
from .ops.convolution import conv2d
from .ops.creation import (
    arange,
    empty,
    empty_like,
    encode,
    eye,
    from_codes,
    from_dlpack,
    from_words,
    full,
    full_like,
    ones,
    ones_like,
    zeros,
    zeros_like,
)
from .ops.einstein import einsum
from .ops.elementwise import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    ceil,
    clip,
    copysign,
    cos,
    cosh,
    exp,
    expm1,
    floor,
    floor_divide,
    hypot,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    maximum,
    minimum,
    pow,
    reciprocal,
    relu,
    remainder,
    round,
    sign,
    signbit,
    sin,
    sinh,
    sqrt,
    square,
    tan,
    tanh,
    trunc,
)
from .ops.functional import map_reduce
from .ops.joining import concat, concatenate, hstack, stack, vstack
from .ops.linalg import linear, matmul
from .ops.logic import (
    bitwise_and,
    bitwise_invert,
    bitwise_or,
    bitwise_xor,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    shift,
)
from .ops.mapping import map, map2
from .ops.masks import dropout_mask, relu_mask
from .ops.nearest import top_k
from .ops.padding import pad
from .ops.pooling import avg_pool2d, max_pool2d
from .ops.promotion import astype, can_cast, iinfo, isdtype, result_type
from .ops.quantization import quantize
from .ops.rearranging import array_split, flip, meshgrid, roll, rot90, split, tile, unstack
from .ops.reduction import (
    all,
    any,
    count_nonzero,
    counts,
    max,
    mean,
    min,
    prod,
    std,
    sum,
    var,
)
from .ops.repacking import repack
from .ops.reshaping import ravel, reshape
from .ops.searching import (
    argmax,
    argmin,
    argsort,
    cumulative_prod,
    cumulative_sum,
    diff,
    nonzero,
    searchsorted,
    sort,
)
from .ops.sets import isin, unique_all, unique_counts, unique_inverse, unique_values
from .ops.taking import repeat, take
from .ops.views import (
    broadcast_arrays,
    broadcast_shapes,
    broadcast_to,
    expand_dims,
    matrix_transpose,
    moveaxis,
    permute_dims,
    squeeze,
    swapaxes,
    transpose,
)
from .placement import on
from .quantizers import (
    ABC,
    LQ,
    PACT,
    XNOR,
    ABCActivations,
    DoReFa,
    Greedy,
    Grouped,
    LloydMax,
    NormalFloat,
    PowerOfTwo,
    Quantizer,
    Sign,
    Ternary,
    Uniform,
)
from .threads import get_num_threads, set_num_threads
from .thresholds import Thresholds
from .tuning import autotune

if TYPE_CHECKING:
    from . import nn
    from .report.compare import Comparison, compare
else:
    # Imported when they are asked for: people who came for arrays do not wait for them
    _LATER = {"nn": ".nn", "compare": ".report.compare", "Comparison": ".report.compare"}

    def __getattr__(name):  # hidden from type checkers, which would take every name for an attribute
        from importlib import import_module

        from .forks import no_fork

        with no_fork:
            if name in _LATER:
                module = import_module(_LATER[name], __name__)
                return getattr(module, name, module)
            from .array_api import REFUSED

        reason = f": {REFUSED[name]}" if name in REFUSED else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{reason}")


__version__ = "0.1.0"


def __dir__() -> list[str]:
    return list(__all__)


__all__ = [
    "ABC",
    "LQ",
    "PACT",
    "XNOR",
    "ABCActivations",
    "Affine",
    "Comparison",
    "Constants",
    "CuQuantArray",
    "DType",
    "DeviceError",
    "DoReFa",
    "FormatError",
    "Greedy",
    "Grouped",
    "LloydMax",
    "NormalFloat",
    "PowerOfTwo",
    "QuantArray",
    "Quantizer",
    "Sign",
    "Ternary",
    "Thresholds",
    "Uniform",
    "__version__",
    "abs",
    "acos",
    "acosh",
    "add",
    "all",
    "allocate_bits",
    "any",
    "arange",
    "argmax",
    "argmin",
    "argsort",
    "array_equal",
    "array_split",
    "asin",
    "asinh",
    "asnumpy",
    "astype",
    "atan",
    "atan2",
    "atanh",
    "autotune",
    "avg_pool2d",
    "basis",
    "bipolar",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_or",
    "bitwise_xor",
    "broadcast_arrays",
    "broadcast_shapes",
    "broadcast_to",
    "can_cast",
    "ceil",
    "choose",
    "clip",
    "compare",
    "concat",
    "concatenate",
    "conj",
    "conv2d",
    "copysign",
    "cos",
    "cosh",
    "count_nonzero",
    "counts",
    "cumulative_prod",
    "cumulative_sum",
    "device",
    "diff",
    "divide",
    "dot",
    "dropout_mask",
    "einsum",
    "empty",
    "empty_like",
    "encode",
    "equal",
    "exp",
    "expand_dims",
    "expm1",
    "eye",
    "flip",
    "floor",
    "floor_divide",
    "fold_batchnorm",
    "from_bitarray",
    "from_codes",
    "from_dlpack",
    "from_packbits",
    "from_words",
    "full",
    "full_like",
    "get_num_threads",
    "greater",
    "greater_equal",
    "hamming",
    "hstack",
    "hypot",
    "iinfo",
    "inner",
    "int2",
    "int3",
    "int4",
    "int5",
    "int6",
    "int7",
    "int8",
    "integers",
    "isdtype",
    "isfinite",
    "isin",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "linalg",
    "linear",
    "load",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "map",
    "map2",
    "map_reduce",
    "matmul",
    "matrix_transpose",
    "max",
    "max_pool2d",
    "maximum",
    "mean",
    "meshgrid",
    "min",
    "minimum",
    "moveaxis",
    "multiply",
    "negative",
    "nn",
    "nonzero",
    "not_equal",
    "on",
    "ones",
    "ones_like",
    "outer",
    "pack_bits",
    "pad",
    "permute_dims",
    "positive",
    "pow",
    "prod",
    "quantize",
    "quantizers",
    "ravel",
    "real",
    "reciprocal",
    "relu",
    "relu_mask",
    "remainder",
    "repack",
    "repeat",
    "reshape",
    "result_type",
    "roll",
    "rot90",
    "round",
    "save",
    "searchsorted",
    "set_num_threads",
    "shift",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "sort",
    "split",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "std",
    "subtract",
    "sum",
    "swapaxes",
    "table",
    "take",
    "take_along_axis",
    "tan",
    "tanh",
    "tensordot",
    "ternary",
    "testing",
    "tile",
    "to_packbits",
    "top_k",
    "transpose",
    "trunc",
    "uint1",
    "uint2",
    "uint3",
    "uint4",
    "uint5",
    "uint6",
    "uint7",
    "uint8",
    "uniform",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    "unpack_bits",
    "unstack",
    "var",
    "vecdot",
    "vstack",
    "where",
    "zeros",
    "zeros_like",
]

del TYPE_CHECKING  # all names here are public, but for the modules that imports leave behind
