"""quantarray: the array library for low-bit tensors, what NumPy is to floats, for 1 to 8 bits.

import numpy as np
import quantarray as qa

x = qa.quantize(np.random.randn(1, 56, 56, 64), qa.Sign())
w = qa.quantize(np.random.randn(64, 3, 3, 64), qa.Sign(scale=True), scale_axis=0)
y = qa.conv2d(x, w, padding=1)
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

from . import linalg, numpy_protocol, quantizers, testing
from . import methods as methods
from .arrays.affine import Affine
from .arrays.array import CuQuantArray, QuantArray
from .arrays.thresholds import Thresholds
from .core.dtypes import (
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
from .core.errors import DeviceError, FormatError
from .core.forks import no_fork as _no_fork
from .core.refusals import reason as _reason
from .core.super_blocks import SuperBlocks
from .core.version import __version__
from .io.container import load, save
from .ops.creation.bit_packing import from_bitarray, from_packbits, pack_bits, to_packbits, unpack_bits
from .ops.creation.creation import (
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
from .ops.creation.masks import dropout_mask, relu_mask
from .ops.elementwise.arithmetic import add, conj, divide, multiply, negative, positive, real, subtract
from .ops.elementwise.comparison import array_equal, equal, greater, greater_equal, less, less_equal, not_equal, where
from .ops.elementwise.level_functions import (
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
from .ops.elementwise.logic import (
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
from .ops.elementwise.mapping import map, map2
from .ops.linear_algebra.contractions import dot, hamming, inner, outer, tensordot, vecdot
from .ops.linear_algebra.einsum import einsum
from .ops.manipulation.along import take_along_axis
from .ops.manipulation.joining import concat, concatenate, hstack, stack, vstack
from .ops.manipulation.padding import pad
from .ops.manipulation.rearranging import array_split, flip, meshgrid, roll, rot90, split, tile, unstack
from .ops.manipulation.repacking import repack
from .ops.manipulation.reshaping import ravel, reshape
from .ops.manipulation.shuffling import channel_shuffle
from .ops.manipulation.taking import repeat, take
from .ops.manipulation.views import (
    broadcast_arrays,
    broadcast_shapes,
    broadcast_to,
    expand_dims,
    matrix_transpose,
    moveaxis,
    permute_dims,
    planes,
    squeeze,
    swapaxes,
    transpose,
)
from .ops.on_device import on
from .ops.products.adjoints import (
    conv1d_data_adjoint,
    conv1d_filter_adjoint,
    conv2d_data_adjoint,
    conv2d_filter_adjoint,
    conv3d_data_adjoint,
    conv3d_filter_adjoint,
)
from .ops.products.average_pooling import avg_pool1d, avg_pool2d, avg_pool3d
from .ops.products.batchnorm import fold_batchnorm
from .ops.products.conv_transpose import conv_transpose1d, conv_transpose2d, conv_transpose3d
from .ops.products.convolution import conv2d
from .ops.products.convolution_1d_3d import conv1d, conv3d
from .ops.products.folding import fold
from .ops.products.hadamard import Hadamard
from .ops.products.matrix_product import linear, matmul
from .ops.products.pooling import max_pool1d, max_pool2d, max_pool3d
from .ops.products.residual import add_residual
from .ops.products.rms_norm import RMSNorm
from .ops.quantize.bit_allocation import allocate_bits
from .ops.quantize.quantization import quantize
from .ops.quantize.scheme_choice import choose
from .ops.search.embeddings import from_embeddings
from .ops.search.nearest import rescore, top_k, within
from .ops.search.rabitq import RaBitQ, RotatedRows
from .ops.statistical.map_reduce import map_reduce
from .ops.statistical.reductions import all, any, count_nonzero, counts, max, mean, min, prod, std, sum, var
from .ops.statistical.searching import (
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
from .ops.statistical.sets import isin, unique_all, unique_counts, unique_inverse, unique_values
from .ops.threads import get_num_threads, set_num_threads
from .ops.words.dtype_functions import astype, can_cast, iinfo, isdtype, result_type
from .ops.words.placement import asnumpy, device
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

if TYPE_CHECKING:
    from . import nn
    from . import torch as torch
    from .report.compare import Comparison, compare
    from .report.explain import Explanation, explain
else:
    # Imported when they are asked for: people who came for arrays do not wait for them
    _LATER = {
        "nn": ".nn",
        "torch": ".torch",  # not in __all__: `import *` would need PyTorch
        "compare": ".report.compare",
        "Comparison": ".report.compare",
        "explain": ".report.explain",
        "Explanation": ".report.explain",
    }

    def __getattr__(name):  # hidden from type checkers, which would take every name for an attribute
        if name in _LATER:
            with _no_fork:
                module = _import_module(_LATER[name], __name__)
            return getattr(module, name, module)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_reason(name)}")


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
    "Explanation",
    "FormatError",
    "Greedy",
    "Grouped",
    "Hadamard",
    "LloydMax",
    "NormalFloat",
    "PowerOfTwo",
    "QuantArray",
    "Quantizer",
    "RMSNorm",
    "RaBitQ",
    "RotatedRows",
    "Sign",
    "SuperBlocks",
    "Ternary",
    "Thresholds",
    "Uniform",
    "__version__",
    "abs",
    "acos",
    "acosh",
    "add",
    "add_residual",
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
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
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
    "channel_shuffle",
    "choose",
    "clip",
    "compare",
    "concat",
    "concatenate",
    "conj",
    "conv1d",
    "conv1d_data_adjoint",
    "conv1d_filter_adjoint",
    "conv2d",
    "conv2d_data_adjoint",
    "conv2d_filter_adjoint",
    "conv3d",
    "conv3d_data_adjoint",
    "conv3d_filter_adjoint",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
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
    "explain",
    "expm1",
    "eye",
    "flip",
    "floor",
    "floor_divide",
    "fold",
    "fold_batchnorm",
    "from_bitarray",
    "from_codes",
    "from_dlpack",
    "from_embeddings",
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
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
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
    "planes",
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
    "rescore",
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
    "within",
    "zeros",
    "zeros_like",
]

numpy_protocol.register({name: globals()[name] for name in __all__ if name in globals()})
numpy_protocol.register({name: getattr(linalg, name) for name in linalg.__all__}, "linalg")

del TYPE_CHECKING  # all names here are public, except the modules that imports leave here
