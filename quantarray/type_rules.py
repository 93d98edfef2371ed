"""Which law and dtype come out of a function: one table for the documentation and its test.

A rule depends on the operands' dtypes, on whether integer levels have a scale, and on operands that are not packed;
never on codes. *Exact* operands have integer levels without a scale, and integers or none besides; all others are
*real*. Two packed operands are exact if both are.
"""

from __future__ import annotations

from typing import NamedTuple


class Rule(NamedTuple):
    """What comes out of exact operands, and of real ones."""

    exact: str
    real: str


_SAME_TABLE = "table of the same bits and levels"
_MERGED = "integers of the results' levels in ascending order, equal ones merged; in the order of codes, and the words "
_MERGED += "untouched, where no two are equal and the bits stay"
_PAIRS = "two arrays, of 8 bits together at most: "
_TABLE = Rule(_MERGED, f"{_SAME_TABLE}; {_PAIRS}table with one level a pair")
_FLOAT = Rule(_SAME_TABLE, _SAME_TABLE)
_FLOAT_PAIR = Rule(_TABLE.real, _TABLE.real)
_UINT1 = Rule("uint1", "uint1")
_ONLY_UINT1 = Rule("uint1 of uint1; others are refused", "refused")
_WHOLE = Rule("the array itself", _SAME_TABLE)
_SUM = Rule(
    f"integers; {_PAIRS}integers of all sums in ascending order",
    "uniform and basis: the same with another offset. Integers, scaled or with a float or a vector: uniform if their "
    f"step is even and, without scale and vector, rounding is exact; else {_SAME_TABLE}. Table: the same. {_PAIRS}"
    "table with one level a pair",
)
_LIKE = Rule("the dtype of q", "the law of q")
_GIVEN = Rule(
    "the integer dtype given; else the smallest of uint1 .. uint8, int2 .. int8 that holds the values", "refused"
)
_GIVEN_UINT1 = Rule("the integer dtype given; uint1 if none is", "refused")
_CODES = Rule("the dtype given", "the law given: dtype and constants")

RULES: dict[str, Rule] = {
    # level algebra
    "positive": Rule("the array itself", "the array itself"),
    "negative": Rule(
        "integers of the other sign in the same order of codes", "the same law, constants of the other sign"
    ),
    "add": _SUM,
    "subtract": _SUM,
    "multiply": Rule(
        f"integers; {_PAIRS}integers of all products in ascending order",
        "the same law with other constants; integers with a float or a vector: the same dtype with a scale. "
        f"{_PAIRS}table with one level a pair",
    ),
    "divide": Rule(
        f"q / s: the same dtype with a scale; s / q: {_SAME_TABLE}; {_PAIRS}table with one level a pair",
        f"q / s: the same law with other constants; s / q: {_SAME_TABLE}; {_PAIRS}table with one level a pair",
    ),
    # functions of levels
    **dict.fromkeys(("abs", "relu", "square", "clip", "maximum", "minimum", "floor_divide", "remainder"), _TABLE),
    "pow": Rule(f"integers for exponents from 0 on, equal ones merged; else {_TABLE.real}", _TABLE.real),
    "sign": Rule("integers -1, 0, 1, those that the levels give", "ternary"),
    "round": Rule(f"the array itself for decimals from 0 on; else {_MERGED}", _SAME_TABLE),
    **dict.fromkeys(("floor", "ceil", "trunc"), _WHOLE),
    **dict.fromkeys(
        """acos acosh asin asinh atan atanh cos cosh exp expm1 log log10 log1p log2 reciprocal sin sinh sqrt tan
        tanh""".split(),
        _FLOAT,
    ),
    **dict.fromkeys(("atan2", "copysign", "hypot", "logaddexp"), _FLOAT_PAIR),
    **dict.fromkeys(("isfinite", "isinf", "isnan", "signbit"), _UINT1),
    "map": Rule(
        f"f's integers: {_MERGED}. Its bools: uint1. Its floats: {_SAME_TABLE}",
        "as for exact operands; integers are those of the constants, ascending",
    ),
    "map2": Rule(
        "f's integers: integers in ascending order. Its bools: uint1. Its floats: table with one level a pair",
        "as for exact operands",
    ),
    # comparison and logic
    **dict.fromkeys(("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"), _UINT1),
    "where": Rule(
        "integers: the result_type of both",
        "two of one law: that law; else table with the levels of a and, behind them, those of b",
    ),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor", "logical_not"), _UINT1),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_invert", "shift"), _ONLY_UINT1),
    # between dtypes
    "astype": Rule("the dtype given", "the dtype given"),
    "result_type": Rule(
        "the first dtype with all levels, else integers of all levels in ascending order",
        "equal dtypes: that one; else refused",
    ),
    # creation
    **dict.fromkeys(("full", "arange"), _GIVEN),
    **dict.fromkeys(("zeros", "ones", "empty", "eye"), _GIVEN_UINT1),
    **dict.fromkeys(("full_like", "zeros_like", "ones_like", "empty_like"), _LIKE),
    **dict.fromkeys(("from_codes", "from_words"), _CODES),
    "encode": Rule("the integers given; bools: uint1", "refused"),
    "from_dlpack": Rule("the integer dtype given; else bool: uint1, uint8: uint8, int8: int8", "refused"),
    **dict.fromkeys(("pack_bits", "from_packbits", "from_bitarray"), Rule("uint1", "refused")),
}
