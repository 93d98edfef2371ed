"""The types of GGUF's tensors: how many bytes a block of weights has, and which law its codes have.

Values are exactly the float32 numbers of the reference. Where it multiplies a float16 scale by whole numbers, the
product fits in float32's 24 bits; where it adds an offset, it rounds once, and the law here rounds once too.
"""

from __future__ import annotations

from typing import NamedTuple

from ...core.dtypes import DType, bipolar, int3, int4, int5, int6, int8, integers, ternary, uniform
from . import blocks
from .blocks import Decoder


class Law(NamedTuple):
    """A packed type: the dtype of its codes, how many weights have one scale (None: all), what reads its blocks, and
    the bits of integers beside a float16 of each block (None: constants are float32)."""

    dtype: DType
    group: int | None
    decode: Decoder
    bits: int | None = None


class Type(NamedTuple):
    """A type of tensors: weights and bytes of a block, bytes after the last block, and its law or its NumPy dtype.

    One that has neither cannot be read; one without bytes is not known.
    """

    name: str
    block: int = 1
    nbytes: int | None = None
    tail: int = 0
    law: Law | None = None
    dense: str | None = None


_FROM_MINUS_1 = integers(-1, 0, 1, 2)
BFLOAT16 = "bfloat16"  # which NumPy lacks: it is widened to float32


def _packed(
    name: str, block: int, nbytes: int, dtype: DType, group: int | None, decode: Decoder, bits: int | None = None,
    tail: int = 0,
) -> Type:  # fmt: skip
    return Type(name, block, nbytes, tail, Law(dtype, group, decode, bits))


def _dense(name: str, dense: str, nbytes: int) -> Type:
    return Type(name, 1, nbytes, dense=dense)


Q2_0 = _packed("Q2_0", 64, 18, _FROM_MINUS_1, 64, blocks.q2_0)
Q2_0_OF_128 = Type("Q2_0 in its earlier layout of 128 weights", 128, 34)
TYPES = {
    0: _dense("F32", "<f4", 4),
    1: _dense("F16", "<f2", 2),
    2: _packed("Q4_0", 32, 18, int4, 32, blocks.q4_0),
    3: _packed("Q4_1", 32, 20, uniform(4), 32, blocks.q4_1),
    6: _packed("Q5_0", 32, 22, int5, 32, blocks.q5_0),
    7: _packed("Q5_1", 32, 24, uniform(5), 32, blocks.q5_1),
    8: _packed("Q8_0", 32, 34, int8, 32, blocks.q8_0),
    9: Type("Q8_1"),
    10: _packed("Q2_K", 256, 84, uniform(2), 16, blocks.q2_k, bits=4),
    11: _packed("Q3_K", 256, 110, int3, 16, blocks.q3_k, bits=8),
    12: _packed("Q4_K", 256, 144, uniform(4), 32, blocks.q4_k, bits=8),
    13: _packed("Q5_K", 256, 176, uniform(5), 32, blocks.q5_k, bits=8),
    14: _packed("Q6_K", 256, 210, int6, 16, blocks.q6_k, bits=8),
    15: Type("Q8_K"),
    16: Type("IQ2_XXS", 256, 66),
    17: Type("IQ2_XS", 256, 74),
    18: Type("IQ3_XXS", 256, 98),
    19: Type("IQ1_S", 256, 50),
    20: _packed("IQ4_NL", 32, 18, integers(blocks.IQ4_LEVELS), 32, blocks.iq4_nl),
    21: Type("IQ3_S", 256, 110),
    22: Type("IQ2_S", 256, 82),
    23: _packed("IQ4_XS", 256, 136, integers(blocks.IQ4_LEVELS), 32, blocks.iq4_xs, bits=8),
    24: _dense("I8", "<i1", 1),
    25: _dense("I16", "<i2", 2),
    26: _dense("I32", "<i4", 4),
    27: _dense("I64", "<i8", 8),
    28: _dense("F64", "<f8", 8),
    29: Type("IQ1_M", 256, 56),
    30: _dense("BF16", BFLOAT16, 2),
    34: _packed("TQ1_0", 256, 54, ternary, 256, blocks.tq1_0),
    35: _packed("TQ2_0", 256, 66, _FROM_MINUS_1, 256, blocks.tq2_0),
    36: _packed("I2_S", 128, 32, _FROM_MINUS_1, None, blocks.i2_s, tail=32),
    39: _packed("MXFP4", 32, 17, integers(blocks.E2M1_LEVELS), 32, blocks.mxfp4),
    40: _packed("NVFP4", 64, 36, integers(blocks.E2M1_LEVELS), 16, blocks.nvfp4),
    41: _packed("Q1_0", 128, 18, bipolar, 128, blocks.q1_0),
    42: Q2_0,
    142: _packed("PQ2_0", 128, 34, _FROM_MINUS_1, 128, blocks.q2_0),
}  # by the number that a file has
